/* agent/inside/agent_input.c: standard input of a run: a window of bytes between the stream and the run's pipe or
 * terminal. */
#include "agent_run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { END_OF_TERMINAL = 4 }; /* ^D */

int agent_input_open(struct agent_run *run, int fd)
{
    run->input.source = (struct agent_source){.kind = AGENT_SOURCE_INPUT, .fd = fd, .run = run};
    return fcntl(fd, F_SETFL, O_WRONLY | O_NONBLOCK);
}

void agent_input_close(struct agent_run *run)
{
    agent_watch_close(&run->input.source);
    free(run->input.bytes);
    run->input.bytes = NULL;
    run->input.size = 0;
}

/* Write what waits. A reader that is gone lets everything vanish, as the credit still has to come back. */
void agent_input_writable(struct agent_run *run)
{
    struct agent_input *input = &run->input;

    while (input->size && input->source.fd >= 0) {
        size_t part = AGENT_INPUT_BYTES - input->at < input->size ? AGENT_INPUT_BYTES - input->at : input->size;
        ssize_t put = write(input->source.fd, input->bytes + input->at, part);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0 && errno == EAGAIN)
            break;
        if (put < 0) {
            input->owed += input->size;
            agent_input_close(run);
            return;
        }
        input->at = (input->at + (size_t)put) % AGENT_INPUT_BYTES;
        input->size -= (size_t)put;
        input->owed += (uint64_t)put;
    }
    if (input->size) {
        (void)agent_watch(&input->source, EPOLLOUT);
        return;
    }
    free(input->bytes);
    input->bytes = NULL;
    if (input->end)
        agent_input_close(run);
    else if (input->source.fd >= 0)
        (void)agent_watch(&input->source, 0);
}

static void append(struct agent_input *input, const unsigned char *bytes, size_t size)
{
    size_t to, part;

    if (!input->bytes) {
        input->bytes = malloc(AGENT_INPUT_BYTES);
        input->at = 0;
    }
    if (!input->bytes || size > AGENT_INPUT_BYTES - input->size)
        return; /* beyond the window: the broker broke its promise */
    to = (input->at + input->size) % AGENT_INPUT_BYTES;
    part = AGENT_INPUT_BYTES - to < size ? AGENT_INPUT_BYTES - to : size;
    memcpy(input->bytes + to, bytes, part);
    memcpy(input->bytes, bytes + part, size - part);
    input->size += size;
}

void agent_input_write(struct agent_run *run, uint64_t offset, const unsigned char *bytes, size_t size)
{
    struct agent_input *input = &run->input;
    uint64_t known = input->received - offset;

    if (offset > input->received || known >= size || input->end)
        return; /* a gap, or nothing new */
    bytes += known;
    size -= (size_t)known;
    input->received += size;
    if (input->source.fd < 0) {
        input->owed += size;
        return;
    }
    append(input, bytes, size);
    agent_input_writable(run);
}

void agent_input_end(struct agent_run *run)
{
    struct agent_input *input = &run->input;
    static const unsigned char end = END_OF_TERMINAL;

    if (input->end || input->source.fd < 0)
        return;
    if (run->terminal)
        append(input, &end, 1);
    else
        input->end = true;
    agent_input_writable(run);
}

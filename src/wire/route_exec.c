/* Commands of the classic wire: a shell string, one stream. */
#include "alloc.h"
#include "session_run.h"
#include "wire_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    OUTPUT_MAX_BYTES = 100000,
    ARGUMENT_MAX_BYTES = 120 * 1024,     /* the kernel's limit on one is 128 KiB */
    COMMAND_MAX_BYTES = 2 * 1024 * 1024, /* and about this on all together */
    PIECES_MAX = COMMAND_MAX_BYTES / ARGUMENT_MAX_BYTES + 1,
    FIXED_ARGS = 4,
};

/* Puts the pieces of a long command together again, and leaves nothing of that behind for it to see. */
static const char joiner[] = "IFS=; berth_c=\"$*\"; unset IFS; set --; eval \"unset berth_c;$berth_c\"";
static const char nul_refusal[] = "echo 'sh: the command holds a NUL byte' >&2; exit 1";
static const char size_refusal[] = "echo 'sh: argument list too long' >&2; exit 1";

struct command {
    const char *argv[FIXED_ARGS + PIECES_MAX + 1];
    size_t argc;
    char *copy; /* the pieces, each with its NUL; NULL for a short command */
};

static void command_done(struct command *command)
{
    free(command->copy);
}

/* sh is looked up, not named by its path, because it begins its own messages with what it was called by. */
static void command_set(struct command *command, struct wire_text text)
{
    char *out;

    command->argv[command->argc++] = "sh";
    command->argv[command->argc++] = "-c";
    if (wire_has_nul(text) || text.size > COMMAND_MAX_BYTES || text.size <= ARGUMENT_MAX_BYTES) {
        command->argv[command->argc++] = wire_has_nul(text)              ? nul_refusal
                                         : text.size > COMMAND_MAX_BYTES ? size_refusal
                                                                         : text.data;
        return;
    }
    command->argv[command->argc++] = joiner;
    command->argv[command->argc++] = "sh";
    out = command->copy = alloc_array(text.size + PIECES_MAX, 1);
    for (size_t at = 0; at < text.size; at += ARGUMENT_MAX_BYTES) {
        size_t size = text.size - at < ARGUMENT_MAX_BYTES ? text.size - at : ARGUMENT_MAX_BYTES;

        command->argv[command->argc++] = out;
        memcpy(out, text.data + at, size);
        out[size] = '\0';
        out += size + 1;
    }
}

/* Null, 0 and less are the service's ceiling, and more than it is that. */
static int64_t read_timeout_ms(struct wire_call *call)
{
    struct policy *policy = sessions_policy(call->sessions);
    int64_t ceiling_s = policy->execute_timeout_s;
    int64_t seconds = 0;

    policy_unref(policy);
    (void)wire_read_int(&call->body, "timeout_seconds", WIRE_NULLABLE, INT64_MIN, &seconds);
    return (seconds <= 0 || seconds > ceiling_s ? ceiling_s : seconds) * 1000;
}

static int reply_result(struct http_reply *reply, struct session_run_result *result, struct error *err)
{
    const struct wire_output output = {"{\"output\":\"", &result->out};
    int code = result->timed_out ? 124 : result->exit_code;
    char tail[80];

    if (wire_explain_spawn(&result->exit, "sh", &result->out, err) < 0)
        return -1;
    if (result->exit.spawn_failed && result->exit.spawn_errno == E2BIG)
        code = 1;
    (void)snprintf(tail, sizeof tail, "\",\"exit_code\":%d,\"truncated\":%s}", code,
                   result->output_limited ? "true" : "false");
    return wire_reply_output(reply, &output, 1, tail, err);
}

/* POST /sessions/{session_id}/exec */
int route_exec(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_run_result struct session_run_result result = SESSION_RUN_RESULT_INIT;
    auto_cleanup(command_done) struct command command = {{NULL}, 0, NULL};
    struct session_run_request request = {
        .output_max_bytes = OUTPUT_MAX_BYTES, .event_op = "exec", .event_late = "exit 124"};
    struct wire_text text;
    char target[WIRE_TARGET_BYTES];

    (void)wire_read_text(&call->body, "command", WIRE_REQUIRED, &text);
    request.spec.timeout_ms = read_timeout_ms(call);
    if (wire_refused(call, reply))
        return 0;
    command_set(&command, text);
    (void)wire_quote_text(text.data, text.size, target);
    request.spec.argv = command.argv;
    request.spec.argc = command.argc;
    request.spec.merge = true;
    request.event_target = target;
    if (session_run_wait(call->sessions, call->id, &request, call->cancel, &result, err) < 0)
        return -1;
    return reply_result(reply, &result, err);
}

/* Fuzzer: any bytes as what a file applet says, in pieces. What comes out is bounded, single names, paths below their top, and
 * nothing after an end. Records that are nearly right are made of the input, so that more than the magic is tried. */
#include "agent_files.h"
#include "fuzz.h"
#include "provider_files.h"

#include <stdlib.h>
#include <string.h>

static void check_name(const char *name, size_t size)
{
    if (size == 0 || memchr(name, '/', size) || memchr(name, 0, size) || name[size] != '\0' || strcmp(name, ".") == 0 ||
        strcmp(name, "..") == 0)
        abort();
}

static void check(const struct file_record *record)
{
    if (record->size > AGENT_FILE_BYTES_MAX || record->size_bytes < 0 || record->mode > 07777 ||
        record->sys_errno < 0 || record->sys_errno > 4095)
        abort();
    if (record->kind == FILE_RECORD_ENTRY && record->size)
        check_name(record->bytes, record->size);
    if (record->kind == FILE_RECORD_DIR && record->size &&
        (record->bytes[0] == '/' || record->bytes[record->size - 1] == '/' || strlen(record->bytes) != record->size ||
         strstr(record->bytes, "//") || strncmp(record->bytes, "../", 3) == 0 || strstr(record->bytes, "/../")))
        abort();
    if ((record->kind == FILE_RECORD_FAILED || record->kind == FILE_RECORD_SKIPPED) && record->sys_errno == 0)
        abort();
}

static void say(struct buf *out, const uint8_t *step, const uint8_t *bytes, size_t size)
{
    struct agent_file_record record = {.magic = AGENT_FILE_MAGIC, .kind = step[0] % 9, .length = (uint32_t)size};
    struct error err = ERROR_INIT;

    if (record.kind == AGENT_FILE_ENTRY) {
        record.type = 1 + step[1] % 4;
        record.mode = step[2] * 8u;
        record.size_bytes = step[3];
    }
    if (record.kind == AGENT_FILE_FAILED || record.kind == AGENT_FILE_SKIPPED || step[1] > 250)
        record.error = step[2];
    if (record.kind >= AGENT_FILE_DONE)
        record.length = step[3] > 250;
    if (step[4] > 240)
        memcpy((char *)&record + step[5] % (sizeof record - 3), step, 4);
    (void)buf_append(out, &record, sizeof record, &err);
    (void)buf_append(out, bytes, record.length < size ? record.length : size, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_buf struct buf bytes = BUF_INIT(1 << 20);
    struct file_reader reader;
    struct file_record record;
    struct error err = ERROR_INIT;
    bool over = false;
    int got = 0;

    if (size == 0)
        return 0;
    if (data[0] & 1)
        (void)buf_append(&bytes, data, size, &err);
    for (size_t at = 1; !(data[0] & 1) && at + 8 <= size;) {
        size_t length = data[at + 6] % 16;

        if (length > size - at - 8)
            length = size - at - 8;
        say(&bytes, data + at, data + at + 8, length);
        at += 8 + length;
    }
    file_reader_init(&reader);
    for (size_t at = 0; at < bytes.size && got >= 0;) {
        size_t piece = 1 + (size_t)data[at % size];

        if (piece > bytes.size - at)
            piece = bytes.size - at;
        if (file_reader_put(&reader, bytes.data + at, piece, &err) < 0)
            abort(); /* everything was taken */
        at += piece;
        while ((got = file_reader_next(&reader, &record, &err)) > 0) {
            if (over)
                abort();
            check(&record);
            over = file_reader_over(&reader);
        }
    }
    file_reader_done(&reader);
    return 0;
}

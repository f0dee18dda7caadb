/* Commands of the current wire: an argv, streams apart. */
#include "alloc.h"
#include "id.h"
#include "wire_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char **wire_run_argv(struct wire_call *call, size_t *ret_argc, bool *ret_has_nul)
{
    struct json_object *list = NULL;
    const char **argv;
    size_t argc;

    if (!json_member(call->body.object, "argv", &list)) {
        wire_invalid_add(&call->invalid, WIRE_AT("body", "argv"), "missing", "Field required");
        return NULL;
    }
    if (!json_object_is_type(list, json_type_array)) {
        wire_invalid_add(&call->invalid, WIRE_AT("body", "argv"), "list_type", "Input should be a valid list");
        return NULL;
    }
    argc = json_object_array_length(list);
    if (argc == 0) {
        wire_invalid_add(&call->invalid, WIRE_AT("body", "argv"), "too_short",
                         "List should have at least 1 item after validation, not 0");
        return NULL;
    }
    argv = alloc_array(argc, sizeof *argv);
    for (size_t i = 0; i < argc; i++) {
        struct wire_at at = {"body", "argv", NULL, NULL, (int64_t)i};
        struct wire_text item = {"", 0};

        if (wire_text_of(&call->invalid, at, json_object_array_get_idx(list, i), &item) && wire_has_nul(item)) {
            wire_invalid_add(&call->invalid, at, "value_error", "A NUL is in the string");
            *ret_has_nul = true;
        }
        argv[i] = item.data;
    }
    *ret_argc = argc;
    return argv;
}

/* "NAME=value" items in one allocation: the pointers, then the text. */
const char **wire_run_env(struct wire_call *call, size_t *ret_count)
{
    struct json_object *object = NULL;
    const char **env;
    size_t count;
    size_t bytes = 0;
    char *text;

    if (!json_member(call->body.object, "env", &object))
        return NULL;
    if (!json_object_is_type(object, json_type_object)) {
        wire_invalid_add(&call->invalid, WIRE_AT("body", "env"), "dict_type", "Input should be a valid dictionary");
        return NULL;
    }
    json_object_object_foreach(object, name, value)
    {
        struct wire_at at = {"body", "env", name, NULL, -1};
        struct wire_text item;

        if (!wire_text_of(&call->invalid, at, value, &item))
            continue;
        if (wire_has_nul(item) || !*name) /* any other name is the program's affair */
            wire_invalid_add(&call->invalid, at, "value_error", "Not the name or value of an environment variable");
        bytes += strlen(name) + item.size + 2;
    }
    count = (size_t)json_object_object_length(object);
    if (wire_invalid_any(&call->invalid) || count == 0)
        return NULL;
    env = alloc_zero(count * sizeof *env + bytes);
    text = (char *)(env + count);
    count = 0;
    json_object_object_foreach(object, key, content)
    {
        env[count++] = text;
        text = stpcpy(stpcpy(stpcpy(text, key), "="), json_object_get_string(content)) + 1;
    }
    *ret_count = count;
    return env;
}

int wire_run_check_env(struct wire_call *call, struct error *err)
{
    static const char digits[] = "0123456789";
    static const char all[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    struct json_object *object = NULL;

    if (!json_member(call->body.object, "env", &object) || !object)
        return 0;
    json_object_object_foreach(object, name, value)
    {
        (void)value;
        if (!*name || strchr(digits, *name) || name[strspn(name, all)])
            return fail(err, INVALID, "env: not the name of a variable: %.64s", name);
    }
    return 0;
}

static const char *read_run_id(struct wire_call *call)
{
    struct wire_text text;

    if (!wire_read_text(&call->body, "run_id", WIRE_REQUIRED, &text))
        return NULL;
    if (!id_run_valid(text.data, text.size))
        wire_invalid_pattern(&call->invalid, WIRE_AT("body", "run_id"), WIRE_RUN_PATTERN);
    return text.data;
}

int64_t wire_run_timeout_ms(struct wire_call *call)
{
    struct policy *policy = sessions_policy(call->sessions);
    int64_t ceiling_ms = policy->execute_timeout_s * 1000;
    double seconds;

    policy_unref(policy);
    if (!wire_read_seconds(&call->body, "timeout_seconds", WIRE_NULLABLE, &seconds) ||
        seconds * 1000 >= (double)ceiling_ms)
        return ceiling_ms;
    return (int64_t)ceil(seconds * 1000);
}

int wire_run_reply(struct http_reply *reply, const char *program, struct session_run_result *result, struct error *err)
{
    const struct wire_output outputs[] = {{"{\"stdout\":\"", &result->out}, {"\",\"stderr\":\"", &result->err}};
    char tail[160];
    char code[16] = "null";
    char limit[16] = "null";

    if (wire_explain_spawn(&result->exit, program, &result->err, err) < 0)
        return -1;
    if (result->exit_code >= 0)
        (void)snprintf(code, sizeof code, "%d", result->exit_code);
    if (result->output_limited)
        (void)snprintf(limit, sizeof limit, "%d", WIRE_RUN_OUTPUT_MAX_BYTES);
    (void)snprintf(tail, sizeof tail, "\",\"exit_code\":%s,\"timed_out\":%s,\"output_limited\":%s,\"output_limit\":%s}",
                   code, result->timed_out ? "true" : "false", result->output_limited ? "true" : "false", limit);
    return wire_reply_output(reply, outputs, 2, tail, err);
}

/* POST /sessions/{session_id}/run */
int route_run(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_run_result struct session_run_result result = SESSION_RUN_RESULT_INIT;
    struct session_run_request request = {.output_max_bytes = WIRE_RUN_OUTPUT_MAX_BYTES,
                                          .stop_over_output = true,
                                          .cut_bytes = WIRE_RUN_CUT_BYTES,
                                          .event_op = "run",
                                          .event_late = "timed out"};
    auto_free const char **argv = NULL;
    auto_free const char **env = NULL;
    char target[WIRE_TARGET_BYTES];
    bool has_nul = false;

    argv = wire_run_argv(call, &request.spec.argc, &has_nul);
    env = wire_run_env(call, &request.spec.env_count);
    request.spec.timeout_ms = wire_run_timeout_ms(call);
    request.run_id = read_run_id(call);
    if (argv)
        wire_quote_argv(argv, request.spec.argc, target);
    if (has_nul && session_run_refused(call->sessions, call->id, request.event_op, target, err) < 0)
        return -1;
    if (wire_refused(call, reply))
        return 0;
    request.spec.argv = argv;
    request.spec.env = env;
    request.event_target = target;
    if (session_run_wait(call->sessions, call->id, &request, call->cancel, &result, err) < 0)
        return -1;
    return wire_run_reply(reply, argv[0], &result, err);
}

/* POST /sessions/{session_id}/runs/{run_id}/stop */
int route_run_stop(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    size_t size;
    const char *run_id = http_request_param(call->request, 1, &size);
    struct error ignored = ERROR_INIT;

    /* The dialect's pattern, or the name of a run of /runs. */
    if (!id_run_valid(run_id, size) &&
        !(id_name_valid(run_id, size) &&
          session_runs_get(call->sessions, call->id, run_id, NULL, &(struct run_view){.number = 0}, &ignored) == 0))
        wire_invalid_pattern(&call->invalid, WIRE_AT("path", "run_id"), WIRE_RUN_PATTERN);
    if (wire_refused(call, reply))
        return 0;
    if (session_run_stop(call->sessions, call->id, run_id, err) < 0)
        return -1;
    http_reply_empty(reply, 204);
    return 0;
}

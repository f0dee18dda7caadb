#include "engine.h"
#include "engine_json.h"

#include <errno.h>

/* The machine's own calls only: see seccomp.def. */
static const char *const architectures[] = {"SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"};

static struct json_object *add_rule(struct json_object *rules, const char *action)
{
    struct json_object *rule = engine_json_add_object(rules);

    engine_json_put_string(rule, "action", action);
    return rule;
}

static void add_condition(struct json_object *rules, const char *call, int argument, const char *comparison,
                          uint64_t value, uint64_t second)
{
    struct json_object *rule = add_rule(rules, "SCMP_ACT_ALLOW");
    struct json_object *condition;

    engine_json_add_string(engine_json_put_array(rule, "names"), call);
    condition = engine_json_add_object(engine_json_put_array(rule, "args"));
    engine_json_put_int(condition, "index", argument);
    engine_json_put_int(condition, "value", (int64_t)value);
    engine_json_put_int(condition, "valueTwo", (int64_t)second);
    engine_json_put_string(condition, "op", comparison);
}

static void add_not_there(struct json_object *rules, const char *call)
{
    struct json_object *rule = add_rule(rules, "SCMP_ACT_ERRNO");

    engine_json_add_string(engine_json_put_array(rule, "names"), call);
    engine_json_put_int(rule, "errnoRet", ENOSYS);
}

int engine_seccomp_render(struct buf *out, struct error *err)
{
    auto_engine_json struct json_object *root = engine_json_new_object();
    struct json_object *map, *rules, *plain;

    engine_json_put_string(root, "defaultAction", "SCMP_ACT_ERRNO");
    engine_json_put_int(root, "defaultErrnoRet", EPERM);
    map = engine_json_put_array(root, "archMap");
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++) {
        struct json_object *entry = engine_json_add_object(map);

        engine_json_put_string(entry, "architecture", architectures[i]);
        (void)engine_json_put_array(entry, "subArchitectures");
    }
    rules = engine_json_put_array(root, "syscalls");
    plain = engine_json_put_array(add_rule(rules, "SCMP_ACT_ALLOW"), "names");
#define ALLOW(call, reason) engine_json_add_string(plain, #call);
#define ALLOW_VALUE(call, argument, value, reason) add_condition(rules, #call, argument, "SCMP_CMP_EQ", value, 0);
#define ALLOW_MASKED(call, argument, mask, value, reason) \
    add_condition(rules, #call, argument, "SCMP_CMP_MASKED_EQ", mask, value);
#define NOT_THERE(call, reason) add_not_there(rules, #call);
#define REFUSE(call, reason)
#include "seccomp.def"
#undef ALLOW
#undef ALLOW_VALUE
#undef ALLOW_MASKED
#undef NOT_THERE
#undef REFUSE
    return engine_json_write(root, out, err);
}

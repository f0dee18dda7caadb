/* Networks that the operator gives to runtimes: looked at once, at the start, and said. */
#include "session_private.h"

#include "log.h"

#include <string.h>

enum { LOOK_TIMEOUT_MS = 10000 };

static int look_at(struct sessions *sessions, const char *alias, const char *name, const struct cancel *cancel,
                   struct error *err)
{
    char text[PROVIDER_NETWORK_TEXT_BYTES];
    struct error why = ERROR_INIT;

    if (sessions->provider->ops->network(sessions->provider, name, cancel, text, &why) == 0) {
        log_info("network.reaches", log_s("runtime", alias), log_s("network", name), log_s("reaches", text));
        return 0;
    }
    if (why.code == ERROR_UNAVAILABLE || why.code == ERROR_TIMEOUT) {
        log_warn("network.unknown", log_s("runtime", alias), log_s("network", name), log_e(&why));
        return 0; /* without an engine nothing starts; a network that is not there then is its refusal */
    }
    *err = why;
    return error_prefix(err, "SANDBOXD_RUNTIMES: %s", alias);
}

int networks_look(struct sessions *sessions, struct error *err)
{
    const struct cancel stop = {.stop_fd = sessions->settings.stop_fd, .client_fd = -1};
    struct cancel cancel = cancel_within(&stop, LOOK_TIMEOUT_MS);
    auto_policy struct policy *policy = sessions_policy(sessions);

    for (size_t i = 0; i < policy->runtime_count; i++) {
        struct policy_limits limits = policy_effective(policy, &policy->runtimes[i]);

        if (limits.network_mode && strcmp(limits.network_mode, "none") != 0 &&
            look_at(sessions, policy->runtimes[i].alias, limits.network_mode, &cancel, err) < 0)
            return -1;
    }
    return 0;
}

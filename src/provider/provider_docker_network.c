/* What a sandbox on one of the engine's networks can reach, and which networks it must not be on. */
#include "log.h"
#include "provider_docker_private.h"

#include <stdio.h>
#include <string.h>

static void put_text(const struct engine_network *network, char ret_text[PROVIDER_NETWORK_TEXT_BYTES])
{
    (void)snprintf(ret_text, PROVIDER_NETWORK_TEXT_BYTES, "%.40s (%.12s, %.40s): %s%s", network->name, network->driver,
                   network->subnets[0] ? network->subnets : "no subnet",
                   network->apart ? "not each other" : "each other",
                   network->internal ? "; nothing outside" : " and outside");
}

int docker_network(struct provider *provider, const char *name, const struct cancel *cancel,
                   char ret_text[PROVIDER_NETWORK_TEXT_BYTES], struct error *err)
{
    struct docker_provider *self = (struct docker_provider *)provider;
    struct engine_network network;
    bool ours;

    if (provider_docker_find_place(provider, cancel, err) < 0 ||
        engine_network_inspect(self->engine, name, cancel, &network, err) < 0)
        return -1;
    if (strcmp(network.driver, "host") == 0 || strcmp(network.driver, "null") == 0)
        return fail(err, INVALID, "network %.60s is the host's own: sandboxes are never on it", name);
    /* `place` does not change any more. */
    if (self->place.id[0] && engine_is_on_network(self->engine, self->place.id, name, cancel, &ours, err) < 0)
        return -1;
    if (self->place.id[0] && ours)
        return fail(err, INVALID, "network %.60s is the one that the broker itself is on: sandboxes would reach it",
                    name);
    put_text(&network, ret_text);
    return 0;
}

#include "provider.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

struct sandbox *sandbox_ref(struct sandbox *sandbox)
{
    sandbox->references++;
    return sandbox;
}

void sandbox_unref(struct sandbox *sandbox)
{
    if (sandbox && --sandbox->references == 0)
        sandbox->provider->ops->sandbox_free(sandbox);
}

/* With its length in front, so that no two lists of fields look alike; NULL differs from "". */
static void digest_text(crypto_hash_sha256_state *state, const char *text)
{
    int64_t size = text ? (int64_t)strlen(text) : -1;

    crypto_hash_sha256_update(state, (const unsigned char *)&size, sizeof size);
    if (text)
        crypto_hash_sha256_update(state, (const unsigned char *)text, (unsigned long long)size);
}

void provider_spec_digest(const struct sandbox_spec *spec, char ret_digest[65])
{
    const int64_t numbers[] = {
        1, /* version of this digest: what else goes into a container is ours and changes with the program */
        spec->workspace_path != NULL, /* where it is follows from the slot */
        spec->sandbox_uid,
        spec->memory_bytes,
        spec->memory_swap_bytes,
        spec->nano_cpus,
        spec->cpu_shares,
        spec->pids_limit,
        spec->drop_all_caps,
    };
    unsigned char hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_state state;

    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, (const unsigned char *)numbers, sizeof numbers);
    digest_text(&state, spec->image);
    digest_text(&state, spec->work_dir);
    digest_text(&state, spec->oci_runtime);
    digest_text(&state, spec->network_mode);
    digest_text(&state, spec->tmpfs_size);
    for (const char *const *item = spec->env; item && *item; item++)
        digest_text(&state, *item);
    crypto_hash_sha256_final(&state, hash);
    (void)sodium_bin2hex(ret_digest, 65, hash, sizeof hash);
}

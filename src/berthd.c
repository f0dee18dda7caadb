/* berthd: wiring only. Settings -> store -> provider -> session -> wire -> http; signals; order of shutdown. */
#include "alloc.h"
#include "cleanup.h"
#include "error.h"
#include "http.h"
#include "log.h"
#include "memory.h"
#include "policy.h"
#include "provider.h"
#include "reload.h"
#include "session.h"
#include "settings.h"
#include "size.h"
#include "store.h"
#include "webhook.h"
#include "wire.h"
#include "workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    EXIT_SETTINGS = 2,
    HTTP_GRACE_MS = 3000,
    PLACE_TIMEOUT_MS = 10000,
    PROBE_TIMEOUT_MS = 4000,
    IDLE_TIMEOUT_S = 75,
    HEADER_BYTES = 32 * 1024,
    BODY_MEMORY_BYTES = 64 * 1024,
    PROBE_CONNECTIONS = 32,
    PROBE_BODY_BYTES = 1024,
};

/* Everything that is made, in the order of making; taken down backwards. */
struct berthd {
    const char *config_file; /* NULL: none */
    struct settings settings;
    struct settings reread; /* as SIGHUP read them last; empty before */
    int stop_fd;
    struct store *store;
    struct workspace_root *root;
    struct provider *provider;
    struct sessions *sessions;
    struct wire *wire;
    struct http_server *http;
    struct http_server *probes; /* NULL: none is wanted */
    struct webhooks *webhooks;  /* likewise */
};

struct options {
    const char *config_file;
    bool check_config;
    bool new_key;
    bool probe;
};

/* Returns -1 to go on, else the exit status. */
static int parse_options(int argc, char **argv, struct options *ret)
{
    static const struct option known[] = {{"config", required_argument, NULL, 'c'},
                                          {"check-config", no_argument, NULL, 'k'},
                                          {"new-key", no_argument, NULL, 'n'},
                                          {"probe", no_argument, NULL, 'p'},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'v'},
                                          {NULL, 0, NULL, 0}};
    auto_free char *help = NULL;
    int option;

    while ((option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 'c':
            ret->config_file = optarg;
            break;
        case 'k':
            ret->check_config = true;
            break;
        case 'n':
            ret->new_key = true;
            break;
        case 'p':
            ret->probe = true;
            break;
        case 'h':
            help = settings_help();
            (void)printf(
                "Usage: berthd [--config FILE] [--check-config] [--new-key] [--probe] [--help] [--version]\n\n%s",
                help);
            return EXIT_SUCCESS;
        case 'v':
            (void)puts("berthd " PACKAGE_VERSION);
            return EXIT_SUCCESS;
        default:
            return EXIT_SETTINGS;
        }
    }
    if (optind < argc) {
        (void)fprintf(stderr, "berthd: '%s' is no option\n", argv[optind]);
        return EXIT_SETTINGS;
    }
    return -1;
}

/* -- settings to what the rooms want -- */

static int limits_of(const char *mem, const char *memswap, struct opt_float cpus, struct opt_int cpu_shares,
                     struct opt_int pids_limit, const char *network, const char *oci_runtime, struct policy_limits *ret,
                     struct error *err)
{
    *ret = (struct policy_limits){
        .mem_limit = alloc_str(mem),
        .memswap_limit = alloc_str(memswap),
        .cpus = cpus,
        .cpu_shares = cpu_shares,
        .pids_limit = pids_limit,
        .network_mode = alloc_str(network),
        .oci_runtime = alloc_str(oci_runtime),
    };
    if (size_parse(mem, &ret->mem_bytes, err) < 0 || size_parse(memswap, &ret->memswap_bytes, err) < 0)
        return -1;
    return 0;
}

/* The image of a runtime; of one that is to be built the name that the provider gives it. */
static int image_of(struct provider *provider, const struct runtime_setting *runtime, char **ret_image,
                    struct error *err)
{
    const struct provider_recipe recipe = {
        .alias = runtime->alias,
        .base_image = runtime->build.base_image,
        .apt = runtime->build.apt,
        .pip = runtime->build.pip,
        .npm = runtime->build.npm,
        .setup = runtime->build.setup,
        .env = runtime->build.env,
        .dockerfile_dir = runtime->build.dockerfile,
    };

    if (!runtime->build.is_wanted) {
        *ret_image = alloc_str(runtime->image);
        return 0;
    }
    if (provider_docker_add_recipe(provider, &recipe, ret_image, err) < 0)
        return error_prefix(err, "SANDBOXD_RUNTIMES: %s", runtime->alias);
    return 0;
}

static char *description_of(const struct runtime_setting *runtime)
{
    if (runtime->description)
        return alloc_str(runtime->description);
    if (!runtime->build.is_wanted)
        return alloc_str(runtime->image);
    return alloc_format("built from %s",
                        runtime->build.dockerfile ? runtime->build.dockerfile : runtime->build.base_image);
}

static struct policy *policy_of(const struct settings *settings, struct provider *provider, struct error *err)
{
    struct policy *policy = policy_new();

    policy->runtimes = alloc_array(settings->runtime_count, sizeof *policy->runtimes);
    policy->default_runtime = alloc_str(settings->default_runtime);
    policy->max_sessions = settings->max_sessions;
    policy->max_open_sessions = settings->max_open_sessions;
    policy->max_sessions_per_tenant = settings->max_sessions_per_tenant;
    policy->evict_idle_after = settings->evict_idle_after;
    policy->tmpfs_size = alloc_str(settings->tmpfs_size);
    policy->idle_timeout_s = settings->idle_timeout;
    policy->execute_timeout_s = settings->execute_timeout;
    policy->max_read_bytes = settings->max_read_bytes;
    policy->workspace_ttl = settings->workspace_ttl;
    policy->container_ttl = settings->container_ttl;
    policy->prewarm = settings->prewarm;
    for (size_t i = 0; i < settings->runtime_count; i++) {
        const struct runtime_setting *from = &settings->runtime_list[i];
        struct policy_runtime *to = &policy->runtimes[policy->runtime_count++];

        to->alias = alloc_str(from->alias);
        to->builds = from->build.is_wanted;
        to->description = description_of(from);
        to->caps_none = from->caps_none;
        to->pool = from->pool;
        if (image_of(provider, from, &to->image, err) < 0 ||
            limits_of(from->mem_limit, from->memswap_limit, from->cpus, from->cpu_shares, from->pids_limit,
                      from->network_mode, from->oci_runtime, &to->own, err) < 0) {
            policy_unref(policy);
            return NULL;
        }
    }
    policy_sort(policy);
    if (limits_of(settings->mem_limit, settings->memswap_limit, settings->cpus, settings->cpu_shares,
                  settings->pids_limit, settings->network_mode, settings->oci_runtime, &policy->limits, err) < 0) {
        policy_unref(policy);
        return NULL;
    }
    return policy;
}

/* -- making -- */

static int make_state(struct berthd *berthd, struct error *err)
{
    struct settings *settings = &berthd->settings;

    if (settings->workspace_root && workspace_root_open(settings->workspace_root, &berthd->root, err) < 0)
        return error_prefix(err, "SANDBOXD_WORKSPACE_ROOT");
    if (store_open(settings->state_dir, &berthd->store, err) < 0)
        return error_prefix(err, "SANDBOXD_STATE_DIR");
    return 0;
}

/* In a container whose mounts are wrong nothing would work: better no start. An engine that is away is asked again by what needs it. */
static int find_place(struct berthd *berthd, struct error *err)
{
    const struct cancel until_stop = {.stop_fd = berthd->stop_fd, .client_fd = -1};
    struct cancel cancel = cancel_within(&until_stop, PLACE_TIMEOUT_MS);
    struct error why = ERROR_INIT;

    if (provider_docker_find_place(berthd->provider, &cancel, &why) == 0)
        return 0;
    if (why.code != ERROR_UNAVAILABLE && why.code != ERROR_TIMEOUT) {
        *err = why;
        return -1;
    }
    log_warn("place.later", log_e(&why));
    return 0;
}

static int make_service(struct berthd *berthd, const struct options *options, struct error *err)
{
    const struct settings *settings = &berthd->settings;
    struct provider_docker_settings docker = {.socket_path = settings->engine_socket,
                                              .install = store_install(berthd->store),
                                              .state_dir = settings->state_dir,
                                              .workspace_root = settings->workspace_root,
                                              .epoch = store_epoch(berthd->store),
                                              .build_network = settings->build_network,
                                              .build_timeout_ms = settings->build_timeout * 1000,
                                              .stop_fd = berthd->stop_fd};
    struct sessions_settings sessions = {
        .service_token = settings->token,
        .state_dir = settings->state_dir,
        .work_dir = settings->work_dir,
        .new_key = options->new_key,
        .persist_containers = settings->persist_containers,
        .native_files = settings->native_files,
        .keep_on_stop = strcmp(settings->on_stop, "keep") == 0,
        .sandbox_uid = settings->sandbox_uid.is_set ? settings->sandbox_uid.value : -1,
        .cleanup_interval_s = settings->cleanup_interval,
        .max_upload_bytes = settings->max_upload_bytes,
        .quota_bytes = settings->workspace_quota_bytes.is_set ? settings->workspace_quota_bytes.value : 0,
        .quota_files = settings->workspace_quota_inodes.is_set ? settings->workspace_quota_inodes.value : 0,
        .max_upload_entries = settings->max_upload_entries,
        .freeze_after_s = settings->freeze_after,
        .engine_timeout_ms = settings->engine_timeout * 1000,
        .max_workers = (unsigned)settings->max_workers,
        .max_running_commands = (unsigned)settings->max_running_commands,
        .max_runs_per_session = (unsigned)settings->max_runs_per_session,
        .stop_fd = berthd->stop_fd,
    };
    struct policy *policy;

    /* A broker that is not root runs sandboxes as itself: /workspace would be read-only to anybody else. */
    if (geteuid() != 0 && settings->workspace_root && sessions.sandbox_uid < 0)
        sessions.sandbox_uid = (int64_t)geteuid();
    if (geteuid() != 0 && settings->workspace_root && sessions.sandbox_uid != (int64_t)geteuid())
        return fail(err, INVALID, "SANDBOXD_SANDBOX_UID: a broker that is not root can only use its own, %ld",
                    (long)geteuid());
    if (provider_docker_new(&docker, &berthd->provider, err) < 0 || find_place(berthd, err) < 0)
        return -1;
    policy = policy_of(settings, berthd->provider, err);
    if (!policy)
        return -1;
    if (sessions_new(&sessions, berthd->store, berthd->root, berthd->provider, policy, &berthd->sessions, err) < 0)
        return -1;
    berthd->wire = wire_new(berthd->sessions, settings->ui_enabled);
    if (wire_policy_load(berthd->wire, settings->policy_overrides, err) < 0)
        return error_prefix(err, "the remembered policy");
    return sessions_start(berthd->sessions, err);
}

static int make_http(struct berthd *berthd, struct error *err)
{
    const struct settings *settings = &berthd->settings;
    struct http_settings http = {
        .host = settings->host,
        .port = (uint16_t)settings->port,
        .max_connections = (unsigned)settings->max_connections,
        .max_header_bytes = HEADER_BYTES,
        .max_body_bytes = (uint64_t)settings->max_body_bytes,
        .body_memory_bytes = BODY_MEMORY_BYTES,
        .body_dir = settings->state_dir,
        .idle_timeout_seconds = IDLE_TIMEOUT_S,
        .stop_fd = berthd->stop_fd,
    };

    if (http_server_start(&http, wire_table(berthd->wire), &berthd->http, err) < 0)
        return error_prefix(err, "SANDBOXD_HOST, SANDBOXD_PORT");
    wire_watch_server(berthd->wire, berthd->http);
    if (settings->probe_port.is_set) {
        http.host = settings->probe_host;
        http.port = (uint16_t)settings->probe_port.value;
        http.max_connections = PROBE_CONNECTIONS;
        http.max_body_bytes = PROBE_BODY_BYTES;
        if (http_server_start(&http, wire_probe_table(berthd->wire), &berthd->probes, err) < 0)
            return error_prefix(err, "SANDBOXD_PROBE_HOST, SANDBOXD_PROBE_PORT");
        log_info("berthd.probes_listening", log_s("host", settings->probe_host),
                 log_i("port", http_server_port(berthd->probes)));
    }
    log_info("berthd.listening", log_s("host", settings->host), log_i("port", http_server_port(berthd->http)),
             log_s("engine", settings->engine_socket), log_s("workspace_root", settings->workspace_root));
    return 0;
}

/* Said before anything is made, so that --check-config finds it. */
static int check_webhook(const struct settings *settings, struct error *err)
{
    if (!settings->webhook_url)
        return 0;
    if (webhook_url_check(settings->webhook_url, err) < 0)
        return error_prefix(err, "SANDBOXD_WEBHOOK_URL");
    if (webhook_secret_check(settings->webhook_secret ? settings->webhook_secret : "", err) < 0)
        return error_prefix(err, "SANDBOXD_WEBHOOK_SECRET");
    return 0;
}

static int make_webhooks(struct berthd *berthd, struct error *err)
{
    const struct settings *settings = &berthd->settings;
    struct webhook_settings webhook = {
        .url = settings->webhook_url, .secret = settings->webhook_secret, .stop_fd = berthd->stop_fd};

    if (!settings->webhook_url) {
        webhooks_forget(berthd->store);
        return 0;
    }
    return webhooks_start(&webhook, berthd->store, &berthd->webhooks, err);
}

static void take_down(struct berthd *berthd)
{
    webhooks_stop(berthd->webhooks);
    if (berthd->probes)
        http_server_stop(berthd->probes, HTTP_GRACE_MS);
    if (berthd->http)
        http_server_stop(berthd->http, HTTP_GRACE_MS);
    if (berthd->sessions) {
        sessions_stop(berthd->sessions);
        wire_free(berthd->wire);
        sessions_free(berthd->sessions);
    }
    if (berthd->provider)
        berthd->provider->ops->free(berthd->provider);
    if (berthd->store)
        store_close(berthd->store);
    workspace_root_close(berthd->root);
    settings_done(&berthd->settings);
    settings_done(&berthd->reread);
    if (berthd->stop_fd >= 0)
        (void)close(berthd->stop_fd);
}

/* -- the process -- */

static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* TERM, INT and HUP are taken by sigtimedwait() in the main thread, so they are blocked before any other thread is made. */
static void prepare_process(sigset_t *ret_ends)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)sigemptyset(ret_ends);
    (void)sigaddset(ret_ends, SIGTERM);
    (void)sigaddset(ret_ends, SIGINT);
    (void)sigaddset(ret_ends, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, ret_ends, NULL);
    (void)umask(022);
    raise_descriptor_limit();
}

/* At HUP: the configuration anew, and the policy's file, whether it changed or not. What is wrong leaves all as it is. */
static void read_again(struct berthd *berthd)
{
    auto_cleanup(settings_done) struct settings now = {0};
    struct error err = ERROR_INIT;

    if (settings_load((const char *const *)environ, berthd->config_file, &now, &err) < 0)
        log_warn("settings.reload", log_e(&err));
    else
        reload(berthd->sessions, berthd->wire, &berthd->settings, &berthd->reread, &now);
}

/* Until TERM or INT comes; meanwhile, every cleanup_interval, the policy's file is looked at. */
static int wait_for_end(struct berthd *berthd, const sigset_t *ends)
{
    const struct timespec period = {.tv_sec = berthd->settings.cleanup_interval};
    int signal_number;

    while ((signal_number = sigtimedwait(ends, NULL, &period)) < 0 || signal_number == SIGHUP) {
        if (signal_number == SIGHUP)
            read_again(berthd);
        else if (errno == EAGAIN)
            wire_policy_file_check(berthd->wire);
    }
    return signal_number;
}

/* Is the one with these settings alive? For a container's health check, whose image has no other program. */
static int probe(const struct settings *settings)
{
    const struct cancel never = CANCEL_NEVER;
    struct cancel cancel = cancel_within(&never, PROBE_TIMEOUT_MS);
    struct error err = ERROR_INIT;

    if (http_probe(settings->host, (uint16_t)settings->port, "/healthz", &cancel, &err) == 0)
        return EXIT_SUCCESS;
    (void)fprintf(stderr, "berthd: %s\n", err.text);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    struct berthd berthd = {.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    struct options options = {.config_file = NULL};
    struct error err = ERROR_INIT;
    const uint64_t one = 1;
    sigset_t ends;
    int status = parse_options(argc, argv, &options);

    if (status >= 0)
        return status;
    berthd.config_file = options.config_file ? options.config_file : settings_usual_file();
    if (settings_load((const char *const *)environ, berthd.config_file, &berthd.settings, &err) < 0) {
        (void)fprintf(stderr, "berthd: %s\n", err.text);
        return EXIT_SETTINGS;
    }
    reload_log_level(&berthd.settings);
    log_set_format(strcmp(berthd.settings.log_format, "json") == 0 ? LOG_JSON : LOG_LOGFMT);
    if (check_webhook(&berthd.settings, &err) < 0) {
        (void)fprintf(stderr, "berthd: %s\n", err.text);
        settings_done(&berthd.settings);
        return EXIT_SETTINGS;
    }
    if (options.check_config) {
        (void)printf("berthd: the configuration is good (%s)\n",
                     berthd.config_file ? berthd.config_file : "the environment alone");
        settings_done(&berthd.settings);
        return EXIT_SUCCESS;
    }
    if (options.probe) {
        status = probe(&berthd.settings);
        settings_done(&berthd.settings);
        return status;
    }
    prepare_process(&ends);
    status = EXIT_SUCCESS;
    workspace_jail_force_walk(berthd.settings.portable_walk);
    if (workspace_drop_groups(&err) < 0 || make_state(&berthd, &err) < 0 || make_service(&berthd, &options, &err) < 0 ||
        make_webhooks(&berthd, &err) < 0 || make_http(&berthd, &err) < 0) {
        (void)fprintf(stderr, "berthd: %s\n", err.text);
        status = EXIT_FAILURE;
    } else {
        memory_trim();
        log_info("berthd.stopping", log_s("signal", strsignal(wait_for_end(&berthd, &ends))));
    }
    if (write(berthd.stop_fd, &one, sizeof one) < 0)
        log_error("berthd.stop_fd");
    take_down(&berthd);
    log_info("berthd.stopped");
    return status;
}

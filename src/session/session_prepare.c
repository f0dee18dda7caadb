#include "session_prepare.h"

#include "alloc.h"
#include "log.h"
#include "session_private.h"

#include <string.h>

enum { AT_ONCE_MOST = 8, PREPARE_TIMEOUT_MS = 1800000 };

struct preparation {
    struct sessions *sessions;
    struct preparation *next;
    unsigned references; /* those who look, and the thread; [lock], as all below */
    uint64_t steps;      /* how often the view changed */
    struct preparation_view view;
};

static void leave_locked(struct preparation *preparation)
{
    if (--preparation->references == 0)
        free(preparation);
}

void preparation_leave(struct preparation *preparation)
{
    struct sessions *sessions;

    if (!preparation)
        return;
    sessions = preparation->sessions;
    sessions_lock(sessions);
    leave_locked(preparation);
    sessions_unlock(sessions);
}

static void step_locked(struct preparation *preparation)
{
    preparation->steps++;
    waitq_wake_all(&preparation->sessions->prepare_changed);
}

/* -- its thread -- */

static void say(void *context, const char *text)
{
    struct preparation *preparation = context;

    sessions_lock(preparation->sessions);
    (void)snprintf(preparation->view.text, sizeof preparation->view.text, "%s", text);
    step_locked(preparation);
    sessions_unlock(preparation->sessions);
}

static void unlink_locked(struct preparation *preparation)
{
    struct preparation **at = &preparation->sessions->preparations;

    while (*at != preparation)
        at = &(*at)->next;
    *at = preparation->next;
}

static void *work(void *context)
{
    struct preparation *preparation = context;
    struct sessions *sessions = preparation->sessions;
    const struct cancel stop = {.stop_fd = sessions->settings.stop_fd, .client_fd = -1};
    const struct cancel cancel = cancel_within(&stop, PREPARE_TIMEOUT_MS);
    struct error err = ERROR_INIT;
    struct sandbox_image found = {.id = ""};
    bool was_here = false;
    int result = sessions->provider->ops->prepare(sessions->provider, preparation->view.image, say, preparation,
                                                  &cancel, &found, &was_here, &err);

    if (result < 0)
        log_warn("image.not_prepared", log_s("image", preparation->view.image), log_e(&err));
    sessions_lock(sessions);
    preparation->view.is_done = true;
    preparation->view.was_here = was_here;
    preparation->view.why = err;
    (void)snprintf(preparation->view.image_id, sizeof preparation->view.image_id, "%s", found.id);
    unlink_locked(preparation);
    step_locked(preparation);
    leave_locked(preparation);
    sessions_unlock(sessions);
    return NULL;
}

/* -- who asks -- */

static struct preparation *find_locked(struct sessions *sessions, const char *image, unsigned *ret_count)
{
    struct preparation *found = NULL;

    *ret_count = 0;
    for (struct preparation *at = sessions->preparations; at; at = at->next, (*ret_count)++)
        if (strcmp(at->view.image, image) == 0)
            found = at;
    return found;
}

static struct preparation *begin_locked(struct sessions *sessions, const char *image)
{
    struct preparation *preparation = alloc_zero(sizeof *preparation);
    pthread_attr_t attributes;
    pthread_t thread;
    int number;

    preparation->sessions = sessions;
    preparation->references = 2;
    (void)snprintf(preparation->view.image, sizeof preparation->view.image, "%s", image);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    preparation->next = sessions->preparations;
    sessions->preparations = preparation;
    number = pthread_create(&thread, &attributes, work, preparation);
    (void)pthread_attr_destroy(&attributes);
    if (number == 0)
        return preparation;
    sessions->preparations = preparation->next;
    free(preparation);
    return NULL;
}

int sessions_prepare(struct sessions *sessions, const char *alias, struct preparation **ret, struct error *err)
{
    auto_policy struct policy *policy = sessions_policy(sessions);
    const struct policy_runtime *runtime = policy_runtime(policy, alias);
    unsigned count;

    if (!runtime)
        return fail(err, NOT_FOUND, "Unknown runtime '%.64s'", alias);
    if (strlen(runtime->image) >= PREPARE_IMAGE_BYTES)
        return fail(err, INVALID, "The name of the image is too long");
    sessions_lock(sessions);
    *ret = find_locked(sessions, runtime->image, &count);
    if (*ret)
        (*ret)->references++;
    else if (count < AT_ONCE_MOST)
        *ret = begin_locked(sessions, runtime->image);
    sessions_unlock(sessions);
    return *ret ? 0 : fail(err, LIMIT, "%u images are being prepared already", count);
}

int preparation_next(struct preparation *preparation, uint64_t *seen, const struct cancel *cancel,
                     struct preparation_view *ret, struct error *err)
{
    struct sessions *sessions = preparation->sessions;
    int result = 0;

    sessions_lock(sessions);
    while (preparation->steps <= *seen && result == 0)
        result = waitq_wait(&sessions->prepare_changed, &sessions->lock, cancel, err);
    if (preparation->steps > *seen) {
        error_clear(err);
        result = 0;
        *seen = preparation->steps;
        *ret = preparation->view;
    }
    sessions_unlock(sessions);
    return result;
}

void prepare_stop(struct sessions *sessions)
{
    const struct cancel never = CANCEL_NEVER;
    struct error err = ERROR_INIT;

    sessions_lock(sessions);
    while (sessions->preparations && waitq_wait(&sessions->prepare_changed, &sessions->lock, &never, &err) == 0)
        ;
    sessions_unlock(sessions);
}

/* -- the list -- */

void sessions_runtimes(struct sessions *sessions, const struct cancel *cancel, struct runtime_view **ret_list,
                       size_t *ret_count)
{
    auto_policy struct policy *policy = sessions_policy(sessions);
    struct runtime_view *list = alloc_array(policy->runtime_count + 1, sizeof *list);
    const struct cancel bounded = cancel_within(cancel, sessions->settings.engine_timeout_ms);

    for (size_t i = 0; i < policy->runtime_count; i++) {
        const struct policy_runtime *runtime = &policy->runtimes[i];
        struct sandbox_image found;

        list[i].alias = alloc_str(runtime->alias);
        list[i].image = alloc_str(runtime->image);
        list[i].description = alloc_str(runtime->description);
        if (sessions->provider->ops->image(sessions->provider, runtime->image, false, &bounded, &found, &list[i].why) ==
            0)
            (void)snprintf(list[i].image_id, sizeof list[i].image_id, "%s", found.id);
        else if (list[i].why.code == ERROR_NOT_FOUND)
            error_clear(&list[i].why);
    }
    *ret_list = list;
    *ret_count = policy->runtime_count;
}

void runtime_views_free(struct runtime_view *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(list[i].alias);
        free(list[i].image);
        free(list[i].description);
    }
    free(list);
}

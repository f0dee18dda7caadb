/* Images ahead of their use, on a provider in memory. */
#include "session_fixture.h"
#include "session_prepare.h"

static void setup_prepare(void)
{
    setup();
    wish.keep_on_stop = true;
    wish.max_commands = 4;
    wish.max_runs = 3;
    wish.runtimes = 1;
}

TestSuite(session_prepare, .init = setup_prepare, .fini = teardown, .timeout = 30);

/* To its end. */
static struct preparation_view prepared(struct preparation *preparation)
{
    struct preparation_view view = {.is_done = false};
    struct error err = ERROR_INIT;
    uint64_t seen = 0;

    while (!view.is_done)
        cr_assert_eq(preparation_next(preparation, &seen, &never, &view, &err), 0, "%s", err.text);
    preparation_leave(preparation);
    return view;
}

Test(session_prepare, is_one_for_all_who_ask_meanwhile)
{
    struct preparation *one, *other, *left;
    struct preparation_view view;
    struct error err = ERROR_INIT;
    unsigned before;

    begin();
    before = provider_fake_calls(provider, FAKE_IMAGE);
    provider_fake_delay(provider, FAKE_IMAGE, 300);
    cr_assert_eq(sessions_prepare(sessions, "python", &one, &err), 0, "%s", err.text);
    cr_assert_eq(sessions_prepare(sessions, "python", &other, &err), 0);
    cr_assert_eq(sessions_prepare(sessions, "python", &left, &err), 0);
    preparation_leave(left);
    view = prepared(one);
    cr_assert_eq(view.why.code, ERROR_NONE, "%s", view.why.text);
    cr_assert(view.was_here && view.image_id[0]);
    cr_assert_str_eq(view.image, "python");
    cr_assert(prepared(other).is_done);
    cr_assert_eq(provider_fake_calls(provider, FAKE_IMAGE), before + 1);
    end();
}

Test(session_prepare, says_why_it_failed_and_can_be_asked_again)
{
    struct preparation *preparation;
    struct preparation_view view;
    struct error err = ERROR_INIT;

    begin();
    provider_fake_fail(provider, FAKE_IMAGE, ERROR_ENGINE, 1);
    cr_assert_eq(sessions_prepare(sessions, "python", &preparation, &err), 0);
    view = prepared(preparation);
    cr_assert_eq(view.why.code, ERROR_ENGINE);
    cr_assert_eq(sessions_prepare(sessions, "python", &preparation, &err), 0);
    cr_assert_eq(prepared(preparation).why.code, ERROR_NONE);
    cr_assert_eq(sessions_prepare(sessions, "ruby", &preparation, &err), -1);
    cr_assert_eq(err.code, ERROR_NOT_FOUND);
    end();
}

Test(session_prepare, ends_with_the_broker)
{
    struct preparation *preparation;
    struct error err = ERROR_INIT;
    int64_t before_ms;

    begin();
    provider_fake_delay(provider, FAKE_IMAGE, 20000);
    cr_assert_eq(sessions_prepare(sessions, "python", &preparation, &err), 0);
    preparation_leave(preparation);
    before_ms = clock_mono_ms();
    end();
    cr_assert_lt(clock_mono_ms() - before_ms, 10000);
}

Test(session_prepare, lists_what_is_here)
{
    struct runtime_view *list;
    size_t count;

    begin();
    sessions_runtimes(sessions, &never, &list, &count);
    cr_assert_eq(count, 1);
    cr_assert(list[0].image_id[0] && list[0].why.code == ERROR_NONE);
    runtime_views_free(list, count);
    provider_fake_only_image(provider, NULL, 0);
    sessions_runtimes(sessions, &never, &list, &count);
    cr_assert(list[0].why.code == ERROR_NONE && !list[0].image_id[0]);
    runtime_views_free(list, count);
    provider_fake_fail(provider, FAKE_IMAGE, ERROR_UNAVAILABLE, 1);
    sessions_runtimes(sessions, &never, &list, &count);
    cr_assert(list[0].why.code == ERROR_UNAVAILABLE && !list[0].image_id[0]);
    runtime_views_free(list, count);
    end();
}

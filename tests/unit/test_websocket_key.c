#include "websocket_key.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

Test(websocket_key, proves_that_the_handshake_was_understood)
{
    char accept[WEBSOCKET_ACCEPT_BYTES];

    cr_assert(websocket_accept("dGhlIHNhbXBsZSBub25jZQ==", accept));
    cr_assert(eq(str, accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")); /* RFC 6455, 1.3 */
    cr_assert(not(websocket_accept("dGhlIHNhbXBsZSBub25jZQ=", accept)));
    cr_assert(not(websocket_accept("dGhlIHNhbXBsZSBub25jZ*==", accept)));
    cr_assert(not(websocket_accept("dGhlIHNhbXBsZSBub25jZQAA", accept)));
    cr_assert(not(websocket_accept("", accept)));
}

/* util/websocket_key.h: the proof that the other side has understood a WebSocket's handshake. Both sides of it are spoken here: http/ makes it, cli/
 * checks it. Never blocks. Threads: any. */
#ifndef BERTH_WEBSOCKET_KEY_H
#define BERTH_WEBSOCKET_KEY_H

#include <stdbool.h>

enum { WEBSOCKET_ACCEPT_BYTES = 29 };
/* What answers a Sec-WebSocket-Key: base64 of the SHA-1 of it and the protocol's own UUID. False: it is not 16 bytes in base64. */
bool websocket_accept(const char *key, char out[static WEBSOCKET_ACCEPT_BYTES]);

#endif

/* The proof that a server has understood the handshake (RFC 6455, 4.2.2). SHA-1 (RFC 3174) secures nothing here. */
#include "websocket_key.h"

#include "base64.h"
#include "buf.h"

#include <stdint.h>
#include <string.h>

enum { SHA1_BYTES = 20, BLOCK_BYTES = 64, KEY_CHARACTERS = 24, KEY_BYTES = 16 };

static const char uuid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

static uint32_t rotated(uint32_t word, unsigned bits)
{
    return word << bits | word >> (32 - bits);
}

static void take_block(uint32_t state[static 5], const unsigned char block[static BLOCK_BYTES])
{
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    uint32_t words[80];

    for (int i = 0; i < 16; i++)
        words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
                   block[4 * i + 3];
    for (int i = 16; i < 80; i++)
        words[i] = rotated(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t mixed = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999
                         : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1
                         : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc
                                  : (b ^ c ^ d) + 0xca62c1d6;
        uint32_t next = rotated(a, 5) + mixed + e + words[i];

        e = d;
        d = c;
        c = rotated(b, 30);
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

/* Of at most 119 bytes: two blocks. */
static void sha1(const void *data, size_t size, unsigned char out[static SHA1_BYTES])
{
    uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    unsigned char blocks[2 * BLOCK_BYTES] = {0};
    size_t used = size + 9 <= BLOCK_BYTES ? BLOCK_BYTES : 2 * BLOCK_BYTES;

    memcpy(blocks, data, size);
    blocks[size] = 0x80;
    blocks[used - 2] = (unsigned char)(size * 8 >> 8);
    blocks[used - 1] = (unsigned char)(size * 8);
    for (size_t at = 0; at < used; at += BLOCK_BYTES)
        take_block(state, blocks + at);
    for (int i = 0; i < SHA1_BYTES; i++)
        out[i] = (unsigned char)(state[i / 4] >> (24 - 8 * (i % 4)));
}

bool websocket_accept(const char *key, char out[static WEBSOCKET_ACCEPT_BYTES])
{
    auto_buf struct buf decoded = BUF_INIT(64);
    auto_buf struct buf answer = BUF_INIT(WEBSOCKET_ACCEPT_BYTES);
    unsigned char digest[SHA1_BYTES];
    char text[KEY_CHARACTERS + sizeof uuid];
    struct error ignored = ERROR_INIT;

    if (strlen(key) != KEY_CHARACTERS || base64_decode(key, KEY_CHARACTERS, &decoded, &ignored) < 0 ||
        decoded.size != KEY_BYTES)
        return false;
    memcpy(text, key, KEY_CHARACTERS);
    memcpy(text + KEY_CHARACTERS, uuid, sizeof uuid);
    sha1(text, sizeof text - 1, digest);
    if (base64_encode(digest, sizeof digest, &answer, &ignored) < 0)
        return false;
    memcpy(out, buf_str(&answer), WEBSOCKET_ACCEPT_BYTES);
    return true;
}

/* agent/agent_blob.h: the static berth-agent, carried inside the broker. */
#ifndef BERTH_AGENT_BLOB_H
#define BERTH_AGENT_BLOB_H

#include <stddef.h>

extern const unsigned char agent_blob[];
extern const size_t agent_blob_size;

#endif

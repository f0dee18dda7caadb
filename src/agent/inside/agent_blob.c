/* The program as bytes of the broker's read-only data. The assembler finds it relative to the build's top directory. */
#include "agent_blob.h"

__asm__(".section .rodata\n"
        ".balign 16\n"
        ".global agent_blob\n"
        ".type agent_blob, %object\n"
        "agent_blob:\n"
        ".incbin \"src/agent/inside/berth-agent\"\n"
        "1:\n"
        ".size agent_blob, 1b - agent_blob\n"
        ".balign 8\n"
        ".global agent_blob_size\n"
        ".type agent_blob_size, %object\n"
        ".size agent_blob_size, 8\n"
        "agent_blob_size:\n"
        ".quad 1b - agent_blob\n"
        ".previous\n");

/* util/opt.h: numbers that may be absent: the wire's null. */
#ifndef BERTH_OPT_H
#define BERTH_OPT_H

#include <stdbool.h>
#include <stdint.h>

struct opt_int {
    bool is_set;
    int64_t value;
};

struct opt_float {
    bool is_set;
    double value;
};

#endif

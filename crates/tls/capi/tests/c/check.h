/* What every test needs. */

#include <dormouse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                   \
    do {                                                                                              \
        if (!(what)) {                                                                                \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                        \
            abort();                                                                                  \
        }                                                                                             \
    } while (0)

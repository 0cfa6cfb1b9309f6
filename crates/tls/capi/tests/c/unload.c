/* A program that unloads the library while a thread that has used it is alive: the thread ends afterwards, and with it
 * its thread-local memory. */

#include <dlfcn.h>
#include <dormouse.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

#define CALL(function) ((typeof(&function))dlsym(library, #function))
#define CHECK(fact)                                                                                \
    do {                                                                                           \
        if (!(fact)) {                                                                             \
            fprintf(stderr, "%d: %s\n", __LINE__, #fact);                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void *library;
static sem_t used, unloaded;

static void *use(void *nothing)
{
    dormouse_identity identity =
        CALL(dormouse_identity_self_signed)((const uint8_t *)"a.test", 6).identity;
    CHECK(identity.id != 0);
    CHECK(CALL(dormouse_identity_free)(identity) == DORMOUSE_OK);
    sem_post(&used);
    sem_wait(&unloaded);
    return nothing;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    CHECK(argc == 2 && (library = dlopen(argv[1], RTLD_NOW)) != NULL);
    sem_init(&used, 0, 0);
    sem_init(&unloaded, 0, 0);
    CHECK(pthread_create(&thread, NULL, use, NULL) == 0);
    sem_wait(&used);
    CHECK(dlclose(library) == 0);
    sem_post(&unloaded);
    CHECK(pthread_join(thread, NULL) == 0);
    puts("done");
    return 0;
}

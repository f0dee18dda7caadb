/* agent/inside/agent_files_write.c: replace a file by what comes on standard input: a temporary file beside it and a rename.
 *
 * Never half: the size is told before, so that an input that ends early (the broker or process 1 died) is no file. What is
 * stopped leaves nothing: an unnamed file where the kernel has them, else a signal handler that takes the name away. */
#include "agent_files_private.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { PIECE_BYTES = 64 * 1024 };

static volatile sig_atomic_t temporary_is_there;
static int parent = -1;
static char temporary[FILES_LEFTOVER_BYTES];

static void remove_temporary(int number)
{
    if (temporary_is_there)
        (void)unlinkat(parent, temporary, 0);
    _exit(1);
}

static void catch_ends(void)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    struct sigaction action = {.sa_handler = remove_temporary};

    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        (void)sigaction(numbers[i], &action, NULL);
}

static int make_name(void)
{
    uint64_t random;

    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return EIO;
    (void)snprintf(temporary, sizeof temporary, ".berth-%016llx", (unsigned long long)random);
    return 0;
}

/* Go to the directory that holds the last component, making what is missing. Links on the way are followed. */
static int enter_parent(char *path, const char **ret_name)
{
    char *slash = strrchr(path, '/');
    char *rest = NULL, *part = NULL;
    int error = 0;

    parent = open(*path == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return errno;
    *ret_name = slash ? slash + 1 : path;
    if (slash) {
        *slash = '\0';
        part = strtok_r(path, "/", &rest);
    }
    for (; part && !error; part = strtok_r(NULL, "/", &rest)) {
        int next = openat(parent, part, O_PATH | O_DIRECTORY | O_CLOEXEC);

        if (next < 0 && errno == ENOENT && (mkdirat(parent, part, 0777) == 0 || errno == EEXIST))
            next = openat(parent, part, O_PATH | O_DIRECTORY | O_CLOEXEC);
        error = next < 0 ? errno : 0;
        close(parent);
        parent = next;
    }
    return error;
}

/* What lies there decides: whether it may be replaced, and the mode of what replaces it. */
static int judge(const char *name, unsigned *mode)
{
    struct stat status;

    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return EISDIR;
    if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : errno;
    if (S_ISREG(status.st_mode)) {
        *mode = status.st_mode & 0777;
        return 0;
    }
    if (S_ISLNK(status.st_mode))
        return 0; /* the link is replaced, whatever it leads to */
    return S_ISDIR(status.st_mode) ? EISDIR : ENXIO;
}

/* Without a name where that works (and it can get one later, which takes /proc). */
static int open_temporary(int *ret_fd)
{
    int error;

    if (access("/proc/self/fd", F_OK) == 0) {
        *ret_fd = openat(parent, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
        if (*ret_fd >= 0)
            return 0;
    }
    catch_ends();
    error = make_name();
    if (error)
        return error;
    temporary_is_there = true; /* before it is: better a name that is not there than one that stays */
    *ret_fd = openat(parent, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    error = errno;
    if (*ret_fd < 0)
        temporary_is_there = false;
    return *ret_fd < 0 ? error : 0;
}

static int take_all(int fd, uint64_t size)
{
    static char piece[PIECE_BYTES];
    uint64_t taken = 0;

    for (;;) {
        ssize_t got = read(0, piece, sizeof piece);
        ssize_t done = 0;

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno;
        if (got == 0)
            return taken == size ? 0 : EPIPE;
        taken += (uint64_t)got;
        if (taken > size)
            return EINVAL;
        while (done < got) {
            ssize_t put = write(fd, piece + done, (size_t)(got - done));

            if (put < 0 && errno != EINTR)
                return errno;
            done += put > 0 ? put : 0;
        }
    }
}

static int give_name(int fd)
{
    char path[32];
    int error;

    if (temporary_is_there)
        return 0;
    error = make_name();
    if (error)
        return error;
    catch_ends();
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    temporary_is_there = true;
    if (linkat(AT_FDCWD, path, parent, temporary, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    error = errno;
    temporary_is_there = false;
    return error;
}

static int replace(char *path, uint64_t size, unsigned mode)
{
    struct stat status;
    const char *name = "";
    int fd = -1, error = enter_parent(path, &name);

    if (!error)
        error = judge(name, &mode);
    if (!error)
        error = open_temporary(&fd);
    if (!error)
        error = take_all(fd, size);
    if (!error && (fchmod(fd, mode) < 0 || fstat(fd, &status) < 0))
        error = errno;
    if (!error)
        error = give_name(fd);
    if (fd >= 0 && close(fd) < 0 && !error)
        error = errno;
    if (!error && renameat(parent, temporary, parent, name) < 0)
        error = errno;
    if (error && temporary_is_there)
        (void)unlinkat(parent, temporary, 0);
    temporary_is_there = false;
    if (!error)
        files_put_entry(&status, "");
    return error;
}

int files_write(const char *path, uint64_t size, unsigned mode)
{
    char *copy = strdup(path);
    int error = copy ? replace(copy, size, mode) : ENOMEM;

    free(copy);
    return error;
}

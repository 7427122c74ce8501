// Makes file operations fail. The tests load this library into a process of their own with
// LD_PRELOAD, and control it with `readlink`:
//
//   /failing-files/arm/MODE/KINDS/N/FOLDER   operations on files in FOLDER fail from now on
//   /failing-files/count                     the number of operations of these kinds so far
//   /failing-files/disarm                    all operations succeed again
//
// KINDS is a list of letters, or `a` for all kinds: r(ead) w(rite) s(ync) t(runcate) o(pen) u(nlink)
// m(etadata) l(ock) p (map) d (folder). N is the number of the operation that fails first, from 0.
//
//   MODE `once`      operation N fails
//   MODE `from`      operation N and all later ones fail
//   MODE `short`     operation N, a write, writes half of its bytes. All later ones fail.
//   MODE `readonly`  the file system is read-only
//
// Syncs that do not fail do nothing, so that the tests are fast.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum mode { DISARMED, ONCE, FROM, SHORT, READONLY };
enum action { PASS, FAIL, HALF };

enum tracked { OTHER = 1, SHM };

#define MAX_FILES 4096

static volatile enum mode mode;
static char kinds[16];
static long first;
static volatile long count;
static char folder[4096];
static volatile char is_tracked[MAX_FILES];

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_inside(const char *path) {
    return path && folder[0] && strstr(path, folder) != NULL;
}

static int is_file(int fd) { return fd >= 0 && fd < MAX_FILES && is_tracked[fd]; }

static enum action next_action(char kind) {
    if (mode == DISARMED || mode == READONLY || (kinds[0] != 'a' && !strchr(kinds, kind))) return PASS;
    long number = __atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST);
    if (mode == ONCE) return number == first ? FAIL : PASS;
    if (mode == FROM) return number >= first ? FAIL : PASS;
    if (number == first) return kind == 'w' ? HALF : PASS;
    return number > first ? FAIL : PASS;
}

static int is_failing(char kind) {
    if (next_action(kind) != FAIL) return 0;
    errno = EIO;
    return 1;
}

static int is_write_protected(void) {
    if (mode != READONLY) return 0;
    errno = EROFS;
    return 1;
}

#define FAIL_FILE(kind) if (is_file(fd) && is_failing(kind)) return -1
#define FAIL_PATH(kind) if (is_inside(path) && is_failing(kind)) return -1
#define PROTECT_FILE if (is_file(fd) && is_write_protected()) return -1
#define PROTECT_PATH if (is_inside(path) && is_write_protected()) return -1

// Control

static ssize_t answer(char *text, size_t len, long number) {
    return snprintf(text, len, "%ld", number);
}

ssize_t readlink(const char *path, char *text, size_t len) {
    static const char prefix[] = "/failing-files/";
    if (strncmp(path, prefix, sizeof prefix - 1) == 0) {
        const char *command = path + sizeof prefix - 1;
        char name[16];
        if (strcmp(command, "count") == 0) return answer(text, len, count);
        mode = DISARMED;
        count = 0;
        if (sscanf(command, "arm/%15[a-z]/%15[a-z]/%ld%4095s", name, kinds, &first, folder) == 4) {
            mode = strcmp(name, "once") == 0 ? ONCE : strcmp(name, "from") == 0 ? FROM
                 : strcmp(name, "short") == 0 ? SHORT : READONLY;
        }
        return answer(text, len, mode);
    }
    FAIL_PATH('m');
    return REAL(readlink)(path, text, len);
}

// Paths

static int track(int fd, const char *path) {
    if (fd < 0 || fd >= MAX_FILES) return fd;
    size_t len = strlen(path);
    int is_shm = len > 4 && strcmp(path + len - 4, "-shm") == 0;
    is_tracked[fd] = !is_inside(path) ? 0 : is_shm ? SHM : OTHER;
    return fd;
}

static int open_at(int dir, const char *path, int flags, mode_t rights) {
    FAIL_PATH('o');
    if (is_inside(path) && mode == READONLY) {
        int is_missing = faccessat(dir, path, F_OK, 0) != 0;
        if ((flags & O_ACCMODE) != O_RDONLY || (is_missing && (flags & O_CREAT))) {
            errno = is_missing && !(flags & O_CREAT) ? ENOENT : EROFS;
            return -1;
        }
    }
    return track(REAL(openat)(dir, path, flags, rights), path);
}

#define RIGHTS                                                                                     \
    mode_t rights = 0;                                                                             \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                           \
        va_list list;                                                                              \
        va_start(list, flags);                                                                     \
        rights = va_arg(list, mode_t);                                                             \
        va_end(list);                                                                              \
    }

int open(const char *path, int flags, ...) { RIGHTS return open_at(AT_FDCWD, path, flags, rights); }
int open64(const char *path, int flags, ...) { RIGHTS return open_at(AT_FDCWD, path, flags, rights); }
int openat(int dir, const char *path, int flags, ...) { RIGHTS return open_at(dir, path, flags, rights); }
int openat64(int dir, const char *path, int flags, ...) { RIGHTS return open_at(dir, path, flags, rights); }

DIR *opendir(const char *path) {
    if (is_inside(path) && is_failing('o')) return NULL;
    return REAL(opendir)(path);
}

int close(int fd) {
    if (fd >= 0 && fd < MAX_FILES) is_tracked[fd] = 0;
    return REAL(close)(fd);
}

int unlink(const char *path) { FAIL_PATH('u'); PROTECT_PATH; return REAL(unlink)(path); }
int unlinkat(int dir, const char *path, int flags) {
    FAIL_PATH('u');
    PROTECT_PATH;
    return REAL(unlinkat)(dir, path, flags);
}
int rename(const char *path, const char *to) { FAIL_PATH('d'); PROTECT_PATH; return REAL(rename)(path, to); }
int mkdir(const char *path, mode_t rights) {
    FAIL_PATH('d');
    if (access(path, F_OK) != 0) PROTECT_PATH;
    return REAL(mkdir)(path, rights);
}
int chmod(const char *path, mode_t rights) { FAIL_PATH('m'); PROTECT_PATH; return REAL(chmod)(path, rights); }
int access(const char *path, int how) {
    FAIL_PATH('m');
    if (how & W_OK) PROTECT_PATH;
    return REAL(access)(path, how);
}
int stat(const char *path, struct stat *found) { FAIL_PATH('m'); return REAL(stat)(path, found); }
int stat64(const char *path, struct stat64 *found) { FAIL_PATH('m'); return REAL(stat64)(path, found); }
int lstat(const char *path, struct stat *found) { FAIL_PATH('m'); return REAL(lstat)(path, found); }
int lstat64(const char *path, struct stat64 *found) { FAIL_PATH('m'); return REAL(lstat64)(path, found); }
int statx(int fd, const char *path, int flags, unsigned mask, struct statx *found) {
    FAIL_PATH('m');
    FAIL_FILE('m');
    return REAL(statx)(fd, path, flags, mask, found);
}
char *realpath(const char *path, char *resolved) {
    if (is_inside(path) && is_failing('m')) return NULL;
    return REAL(realpath)(path, resolved);
}

// Files

ssize_t read(int fd, void *data, size_t len) { FAIL_FILE('r'); return REAL(read)(fd, data, len); }
ssize_t pread(int fd, void *data, size_t len, off_t at) { FAIL_FILE('r'); return REAL(pread)(fd, data, len, at); }
ssize_t pread64(int fd, void *data, size_t len, off64_t at) { FAIL_FILE('r'); return REAL(pread64)(fd, data, len, at); }

// Sets `len` to half of its value if the write is short.
static int is_write_failing(int fd, size_t *len) {
    if (!is_file(fd)) return 0;
    if (is_write_protected()) return 1;
    switch (next_action('w')) {
    case PASS: return 0;
    case HALF: *len = (*len + 1) / 2; return 0;
    case FAIL: errno = ENOSPC; return 1;
    }
    return 0;
}

ssize_t write(int fd, const void *data, size_t len) {
    if (is_write_failing(fd, &len)) return -1;
    return REAL(write)(fd, data, len);
}
ssize_t pwrite(int fd, const void *data, size_t len, off_t at) {
    if (is_write_failing(fd, &len)) return -1;
    return REAL(pwrite)(fd, data, len, at);
}
ssize_t pwrite64(int fd, const void *data, size_t len, off64_t at) {
    if (is_write_failing(fd, &len)) return -1;
    return REAL(pwrite64)(fd, data, len, at);
}

int fsync(int fd) { FAIL_FILE('s'); return 0; }
int fdatasync(int fd) { FAIL_FILE('s'); return 0; }
int ftruncate(int fd, off_t len) { FAIL_FILE('t'); PROTECT_FILE; return REAL(ftruncate)(fd, len); }
int ftruncate64(int fd, off64_t len) { FAIL_FILE('t'); PROTECT_FILE; return REAL(ftruncate64)(fd, len); }
int fstat(int fd, struct stat *found) { FAIL_FILE('m'); return REAL(fstat)(fd, found); }
int fstat64(int fd, struct stat64 *found) { FAIL_FILE('m'); return REAL(fstat64)(fd, found); }
int futimens(int fd, const struct timespec times[2]) { FAIL_FILE('m'); PROTECT_FILE; return REAL(futimens)(fd, times); }
int fchmod(int fd, mode_t rights) { FAIL_FILE('m'); PROTECT_FILE; return REAL(fchmod)(fd, rights); }
off_t lseek(int fd, off_t at, int from) { FAIL_FILE('r'); return REAL(lseek)(fd, at, from); }
off64_t lseek64(int fd, off64_t at, int from) { FAIL_FILE('r'); return REAL(lseek64)(fd, at, from); }

// No system fails to unlock a file.
int flock(int fd, int how) {
    if (!(how & LOCK_UN)) FAIL_FILE('l');
    return REAL(flock)(fd, how);
}

// SQLite treats a failed lock on its shared memory as a lock that another process holds, for which
// it waits ten seconds.
static int is_lock(int fd, int command, void *argument) {
    if (mode == FROM && is_file(fd) && is_tracked[fd] == SHM) return 0;
    return (command == F_SETLK || command == F_SETLKW || command == F_GETLK) &&
           ((struct flock *)argument)->l_type != F_UNLCK;
}

#define ARGUMENT                                                                                   \
    va_list list;                                                                                  \
    va_start(list, command);                                                                       \
    void *argument = va_arg(list, void *);                                                         \
    va_end(list);

int fcntl(int fd, int command, ...) {
    ARGUMENT
    if (is_lock(fd, command, argument)) FAIL_FILE('l');
    return REAL(fcntl)(fd, command, argument);
}
int fcntl64(int fd, int command, ...) {
    ARGUMENT
    if (is_lock(fd, command, argument)) FAIL_FILE('l');
    return REAL(fcntl64)(fd, command, argument);
}

void *mmap(void *at, size_t len, int rights, int flags, int fd, off_t from) {
    if (is_file(fd) && is_failing('p')) return MAP_FAILED;
    return REAL(mmap)(at, len, rights, flags, fd, from);
}
void *mmap64(void *at, size_t len, int rights, int flags, int fd, off64_t from) {
    if (is_file(fd) && is_failing('p')) return MAP_FAILED;
    return REAL(mmap64)(at, len, rights, flags, fd, from);
}

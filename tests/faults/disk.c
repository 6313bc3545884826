/* A simulated disk, as a library for LD_PRELOAD: it records the operations of a process on the files of a directory in
 * a journal, and can make them fail. journal.rs computes the state of the files after a power failure from the journal.
 *
 * DISK_ROOT     the directory, absolute and without links; it contains no directories
 * DISK_JOURNAL  the file to which the journal is appended
 * DISK_FAULT    the file that names the current fault. It is read with each call: `full`, `read-only`, `flush`,
 *               `checkpoint` (a database file cannot be flushed, but its write-ahead log can), or `stall` (a flush
 *               takes as long as the fault lasts)
 *
 * An operation and its record share a critical section, so the records have the order of the effects. The journal is
 * not flushed, because it is read after a SIGKILL, which the page cache survives. Flushes are recorded and not
 * executed.
 *
 * The library replaces the calls with which the service and its database change files. A test compares the journal with
 * the files, so it detects missing calls. The index of the write-ahead log is mapped into memory and not recorded: the
 * database creates it again. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum deed { CREATE = 1, RESIZE, WRITE, FLUSH, FAILED_FLUSH, RENAME, REMOVE };
enum fault { NONE, FULL, READ_ONLY, NO_FLUSH, NO_CHECKPOINT, STALL };

/* Followed by the name of the file, which is empty for the directory itself, and by `length` bytes if the operation has
 * data. */
struct record {
    uint32_t deed;
    uint32_t name_length;
    uint64_t offset;
    uint64_t length;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root, *fault_file;
static int journal;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("DISK_JOURNAL");
    root = getenv("DISK_ROOT");
    fault_file = getenv("DISK_FAULT");
    if (root == NULL || path == NULL || fault_file == NULL)
        abort();
    journal = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (journal < 0)
        abort();
}

static void record_deed(enum deed deed, const char *name, uint64_t offset, const void *bytes, uint64_t length) {
    struct record record = {deed, (uint32_t)strlen(name), offset, length};
    struct iovec parts[] = {
        {&record, sizeof record},
        {(void *)name, record.name_length},
        {(void *)bytes, bytes == NULL ? 0 : length},
    };
    size_t whole = parts[0].iov_len + parts[1].iov_len + parts[2].iov_len;
    if (syscall(SYS_writev, journal, parts, 3) != (long)whole)
        abort();
}

static enum fault fault(void) {
    static const char *const words[] = {
        [FULL] = "full", [READ_ONLY] = "read-only", [NO_FLUSH] = "flush", [NO_CHECKPOINT] = "checkpoint",
        [STALL] = "stall"};
    char word[16] = "";
    int file = (int)syscall(SYS_openat, AT_FDCWD, fault_file, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return NONE;
    if (syscall(SYS_read, file, word, sizeof word - 1) < 0)
        abort();
    close(file);
    for (enum fault each = FULL; each <= STALL; each++)
        if (strcmp(word, words[each]) == 0)
            return each;
    return NONE;
}

static int fail(int error) {
    errno = error;
    return -1;
}

/* Returns the name of the file at a path; NULL if it is not on the disk. */
static const char *name_at(const char *path) {
    size_t length = strlen(root);
    if (strncmp(path, root, length) != 0)
        return NULL;
    switch (path[length]) {
    case '/':
        return path + length + 1;
    case '\0':
        return path + length;
    default:
        return NULL;
    }
}

/* Returns the name of an open file, stored in `path`; NULL if it is not on the disk or was removed. */
static const char *name_of(int file, char path[PATH_MAX]) {
    static const char removed[] = " (deleted)";
    size_t end = sizeof removed - 1;
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return NULL;
    path[length] = '\0';
    if ((size_t)length > end && strcmp(path + length - end, removed) == 0)
        return NULL;
    return name_at(path);
}

/* Returns the error of a write up to this position of a file, or 0. A full disk still accepts writes within a file. */
static int refusal(int file, uint64_t end) {
    struct stat found;
    switch (fault()) {
    case READ_ONLY:
        return EROFS;
    case FULL:
        return fstat(file, &found) == 0 && end > (uint64_t)found.st_size ? ENOSPC : 0;
    default:
        return 0;
    }
}

static int fails_to_flush(const char *name) {
    const char *ending = strrchr(name, '.');
    switch (fault()) {
    case NO_FLUSH:
        return 1;
    case NO_CHECKPOINT:
        return ending != NULL && strcmp(ending, ".db") == 0;
    default:
        return 0;
    }
}

static int flush(int file, long call) {
    char path[PATH_MAX];
    const char *name = name_of(file, path);
    if (name == NULL)
        return (int)syscall(call, file);
    while (fault() == STALL)
        usleep(1000);
    int fails = fails_to_flush(name);
    pthread_mutex_lock(&lock);
    record_deed(fails ? FAILED_FLUSH : FLUSH, name, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return fails ? fail(EIO) : 0;
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    const char *name = name_at(path);
    if (name == NULL || (flags & (O_ACCMODE | O_CREAT)) == O_RDONLY)
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fault() == READ_ONLY)
        return fail(EROFS);
    pthread_mutex_lock(&lock);
    int is_new = access(path, F_OK) != 0;
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (file >= 0 && is_new)
        record_deed(CREATE, name, 0, NULL, 0);
    else if (file >= 0 && (flags & O_TRUNC))
        record_deed(RESIZE, name, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return file;
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t offset) {
    char path[PATH_MAX];
    const char *name = name_of(file, path);
    if (name == NULL)
        return syscall(SYS_pwrite64, file, bytes, length, offset);
    int error = refusal(file, (uint64_t)offset + length);
    if (error != 0)
        return fail(error);
    pthread_mutex_lock(&lock);
    ssize_t written = syscall(SYS_pwrite64, file, bytes, length, offset);
    if (written > 0)
        record_deed(WRITE, name, (uint64_t)offset, bytes, (uint64_t)written);
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t write(int file, const void *bytes, size_t length) {
    char path[PATH_MAX];
    const char *name = name_of(file, path);
    if (name == NULL)
        return syscall(SYS_write, file, bytes, length);
    int error = refusal(file, (uint64_t)lseek(file, 0, SEEK_CUR) + length);
    if (error != 0)
        return fail(error);
    pthread_mutex_lock(&lock);
    ssize_t written = syscall(SYS_write, file, bytes, length);
    if (written > 0)
        record_deed(WRITE, name, (uint64_t)(lseek(file, 0, SEEK_CUR) - written), bytes, (uint64_t)written);
    pthread_mutex_unlock(&lock);
    return written;
}

int ftruncate(int file, off_t length) {
    char path[PATH_MAX];
    const char *name = name_of(file, path);
    if (name == NULL)
        return (int)syscall(SYS_ftruncate, file, length);
    if (fault() == READ_ONLY)
        return fail(EROFS);
    pthread_mutex_lock(&lock);
    int result = (int)syscall(SYS_ftruncate, file, length);
    if (result == 0)
        record_deed(RESIZE, name, 0, NULL, (uint64_t)length);
    pthread_mutex_unlock(&lock);
    return result;
}

int fsync(int file) {
    return flush(file, SYS_fsync);
}

int fdatasync(int file) {
    return flush(file, SYS_fdatasync);
}

int rename(const char *from, const char *to) {
    const char *name = name_at(from), *new_name = name_at(to);
    if (name == NULL || new_name == NULL)
        return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    if (fault() == READ_ONLY)
        return fail(EROFS);
    pthread_mutex_lock(&lock);
    int result = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    if (result == 0)
        record_deed(RENAME, name, 0, new_name, strlen(new_name));
    pthread_mutex_unlock(&lock);
    return result;
}

int unlink(const char *path) {
    const char *name = name_at(path);
    if (name == NULL)
        return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (fault() == READ_ONLY)
        return fail(EROFS);
    pthread_mutex_lock(&lock);
    int result = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (result == 0)
        record_deed(REMOVE, name, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

/* The names of these calls for large files. */
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t offset) __attribute__((alias("pwrite")));
int ftruncate64(int file, off64_t length) __attribute__((alias("ftruncate")));

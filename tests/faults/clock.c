/* A simulated time of day, as a library for LD_PRELOAD: it adds an offset in seconds to the time. The offset is read
 * from a file with each call. CLOCK_MONOTONIC is not changed, as when the clock of a machine is set.
 *
 * CLOCK_OFFSET  the file, with a decimal number that may be negative; without the file the time is correct */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static time_t offset(void) {
    char digits[32] = "";
    const char *path = getenv("CLOCK_OFFSET");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    if (read(file, digits, sizeof digits - 1) < 0)
        abort();
    close(file);
    return strtol(digits, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME)
        time->tv_sec += offset();
    return result;
}

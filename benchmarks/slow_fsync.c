/* A disk whose every sync takes the same time, for stable ratios: with the data in memory (tmpfs) and this library
   preloaded, there is no other wait. Nothing is durable, and no real disk behaves like this.

   cc -O2 -shared -fPIC -o slow_fsync.so slow_fsync.c; SLOW_FSYNC_US=500 LD_PRELOAD=./slow_fsync.so ...

   It sleeps instead of spinning, because a real disk does not use the processor. sync_file_range is not replaced:
   databases use it only as a hint to start writing early, and do not rely on it for safety. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static long microseconds = -1;

__attribute__((constructor)) static void read_setting(void)
{
    const char *setting = getenv("SLOW_FSYNC_US");
    microseconds = setting ? atol(setting) : 500;
}

static int take_the_time(void)
{
    struct timespec until;
    if (microseconds <= 0)
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += microseconds % 1000000 * 1000;
    until.tv_sec += microseconds / 1000000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    /* By default the kernel may add 50 us to any sleep, to wake fewer times. */
    prctl(PR_SET_TIMERSLACK, 1L);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
    return 0;
}

int fsync(int file) { (void)file; return take_the_time(); }
int fdatasync(int file) { (void)file; return take_the_time(); }
int syncfs(int file) { (void)file; return take_the_time(); }
void sync(void) { take_the_time(); }

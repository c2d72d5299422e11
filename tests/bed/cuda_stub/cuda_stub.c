/* Stands for libcuda and libcudart where there is no GPU: each call sleeps for as many microseconds as it is asked for
 * bytes, and fails with CUDA's code for "out of memory" when asked for an odd number. */
#include <stddef.h>
#include <time.h>

static int nap(unsigned long long *out, size_t microseconds) {
    struct timespec left = {(time_t)(microseconds / 1000000), (long)(microseconds % 1000000) * 1000};
    while (nanosleep(&left, &left) != 0) {
    }
    *out = microseconds;
    return microseconds % 2 == 0 ? 0 : 2;
}

int cuMemAlloc_v2(unsigned long long *pointer, size_t size) { return nap(pointer, size); }

int cuMemCreate(unsigned long long *handle, size_t size, const void *properties, unsigned long long flags) {
    (void)properties;
    (void)flags;
    return nap(handle, size);
}

int cudaMallocAsync(unsigned long long *pointer, size_t size, void *stream) {
    (void)stream;
    return nap(pointer, size);
}

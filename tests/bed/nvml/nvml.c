/* A driver's NVML library as a script tells it: what tests put under the unmodified nvidia-ml-py binding.
 *
 * As with the real one, the GPUs are those of the time of nvmlInit: one that leaves the script later is lost until the
 * library is shut down and initialised again, and handles of before that are worth nothing then.
 */
#define _GNU_SOURCE
#include "script.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))
enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, ARGUMENT_VERSION_MISMATCH = 25,
};
enum { WHOLE = 0xFFFFFFFF, MIG = 0x8000, CALLED = 128 };

typedef uintptr_t device;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned generation, users, attached;
static char attached_uuid[GPUS][NAME];
static uint64_t xids_seen[GPUS];
static struct { const char *function; unsigned count; } called[CALLED];

static void pause_for(double seconds) {
    struct timespec time = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

static void count(const char *function) {
    for (int i = 0; i < CALLED; i++) {
        if (!called[i].function) called[i].function = function;
        if (called[i].function == function || !strcmp(called[i].function, function)) {
            called[i].count++;
            return;
        }
    }
}

static const gpu_t *by_uuid(const script_t *all, const char *uuid) {
    for (int i = 0; i < all->gpus; i++)
        if (!strcmp(all->gpu[i].uuid, uuid)) return &all->gpu[i];
    return NULL;
}

static device handle_of(unsigned slot, unsigned mig) { return ((device)generation << 24) | (slot << 16) | mig; }
static unsigned slot_of(device handle) { return (handle >> 16) & 0xFF; }

/* Find the GPU behind a handle. Returns with the script locked when the answer is OK, else unlocked. */
static int enter(device handle, int with_gpu, const char *function, const script_t **all, const gpu_t **gpu) {
    pthread_mutex_lock(&lock);
    count(function);
    int slept = 0;
    for (;;) {
        const rule_t *rule;
        int answer = OK;
        *all = script();
        *gpu = NULL;
        if (with_gpu) {
            if (!users) answer = UNINITIALIZED;
            else if ((handle >> 24) != generation || slot_of(handle) >= attached) answer = INVALID_ARGUMENT;
            else if (!(*gpu = by_uuid(*all, attached_uuid[slot_of(handle)]))) answer = GPU_IS_LOST;
        }
        if (rule_for(*all, *gpu, "hang", function)) {
            pthread_mutex_unlock(&lock);
            pause_for(0.002);
            pthread_mutex_lock(&lock);
            continue;
        }
        if (!slept && (rule = rule_for(*all, *gpu, "slow", function))) {
            double seconds = (double)rule->number / 1000;
            slept = 1;
            pthread_mutex_unlock(&lock);
            pause_for(seconds);
            pthread_mutex_lock(&lock);
            continue;
        }
        if (!answer && *gpu && (*gpu)->lost) answer = GPU_IS_LOST;
        if (!answer && (rule = rule_for(*all, *gpu, "fail", function))) answer = (int)rule->number;
        if (answer) pthread_mutex_unlock(&lock);
        return answer;
    }
}

static int leave(int answer) {
    pthread_mutex_unlock(&lock);
    return answer;
}

#define ENTER(handle, with_gpu)                                             \
    const script_t *all;                                                    \
    const gpu_t *gpu;                                                       \
    int entered = enter(handle, with_gpu, __func__, &all, &gpu);            \
    if (entered) return entered;                                            \
    (void)all, (void)gpu
#define DRIVER() ENTER(0, 0)
#define DEVICE(handle) ENTER(handle, 1)

static const instance_t *instance_of(const gpu_t *gpu, device handle) {
    for (int i = 0; i < gpu->instances; i++)
        if ((handle & MIG) && gpu->instance[i].gi == ((handle >> 8) & 0x7F) && gpu->instance[i].ci == (handle & 0xFF))
            return &gpu->instance[i];
    return NULL;
}

/* ---- the library itself ---- */

static int initialise(const script_t *all) {
    if (users++) return OK;
    generation++;
    attached = all->gpus;
    for (unsigned i = 0; i < attached; i++) {
        snprintf(attached_uuid[i], NAME, "%s", all->gpu[i].uuid);
        xids_seen[i] = all->gpu[i].xid_number;
    }
    return OK;
}
API int nvmlInit_v2(void) { DRIVER(); return leave(initialise(all)); }
API int nvmlInitWithFlags(unsigned flags) { (void)flags; DRIVER(); return leave(initialise(all)); }
API int nvmlShutdown(void) { DRIVER(); if (!users) return leave(UNINITIALIZED); users--; return leave(OK); }
API const char *nvmlErrorString(int code) { return code == GPU_IS_LOST ? "GPU is lost" : "Scripted Error"; }

API int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    DRIVER();
    snprintf(text, size, "%s", all->driver);
    return leave(OK);
}
API int nvmlSystemGetNVMLVersion(char *text, unsigned size) {
    DRIVER();
    snprintf(text, size, "13.%s", all->driver);
    return leave(OK);
}
API int nvmlSystemGetCudaDriverVersion(int *version) { DRIVER(); *version = all->cuda; return leave(OK); }
API int nvmlSystemGetCudaDriverVersion_v2(int *version) { DRIVER(); *version = all->cuda; return leave(OK); }

API int nvmlDeviceGetCount_v2(unsigned *number) {
    DRIVER();
    if (!users) return leave(UNINITIALIZED);
    *number = attached;
    return leave(OK);
}
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *handle) {
    DRIVER();
    if (!users) return leave(UNINITIALIZED);
    if (index >= attached) return leave(INVALID_ARGUMENT);
    gpu = by_uuid(all, attached_uuid[index]);
    if (!gpu || gpu->lost) return leave(GPU_IS_LOST);
    const rule_t *rule = rule_for(all, gpu, "fail", __func__);
    if (rule) return leave((int)rule->number);
    *handle = handle_of(index, 0);
    return leave(OK);
}
API int nvmlDeviceGetHandleByUUID(const char *uuid, device *handle) {
    DRIVER();
    for (unsigned i = 0; i < attached; i++)
        if (!strcmp(attached_uuid[i], uuid)) {
            *handle = handle_of(i, 0);
            return leave(OK);
        }
    return leave(NOT_FOUND);
}

/* ---- identity ---- */

API int nvmlDeviceGetIndex(device handle, unsigned *index) { DEVICE(handle); *index = slot_of(handle); return leave(OK); }
API int nvmlDeviceGetMinorNumber(device handle, unsigned *minor) {
    DEVICE(handle);
    *minor = slot_of(handle);
    return leave(OK);
}
API int nvmlDeviceGetName(device handle, char *text, unsigned size) {
    DEVICE(handle);
    snprintf(text, size, "%s%s", gpu->name, handle & MIG ? " MIG" : "");
    return leave(OK);
}
API int nvmlDeviceGetUUID(device handle, char *text, unsigned size) {
    DEVICE(handle);
    const instance_t *instance = instance_of(gpu, handle);
    if ((handle & MIG) && !instance) return leave(NOT_FOUND);
    snprintf(text, size, "%s", instance ? instance->uuid : gpu->uuid);
    return leave(OK);
}
typedef struct { char legacy[16]; unsigned domain, bus, number, id, subsystem; char text[32]; } pci;
API int nvmlDeviceGetPciInfo_v3(device handle, pci *info) {
    DEVICE(handle);
    memset(info, 0, sizeof *info);
    info->bus = slot_of(handle) + 1;
    snprintf(info->legacy, sizeof info->legacy, "0000:%02X:00.0", info->bus);
    snprintf(info->text, sizeof info->text, "00000000:%02X:00.0", info->bus);
    return leave(OK);
}

/* ---- memory and processes ---- */

static memory_t memory_of(const script_t *all, const gpu_t *gpu) {
    memory_t memory = gpu->memory;
    if (!gpu->points || !memory.known) return memory;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    double at = (double)time.tv_sec + (double)time.tv_nsec / 1e9 - all->began;
    int next = 0;
    while (next < gpu->points && gpu->point[next].at <= at) next++;
    if (next == 0 || next == gpu->points) memory.used = gpu->point[next ? next - 1 : 0].used;
    else {
        double from = gpu->point[next - 1].at, share = (at - from) / (gpu->point[next].at - from);
        double before = (double)gpu->point[next - 1].used, after = (double)gpu->point[next].used;
        memory.used = (uint64_t)(before + share * (after - before));
    }
    memory.free = memory.total - memory.used - memory.reserved;
    return memory;
}
static int find_memory(const script_t *all, const gpu_t *gpu, device handle, memory_t *memory) {
    const instance_t *instance = instance_of(gpu, handle);
    if ((handle & MIG) && !instance) return NOT_FOUND;
    *memory = instance ? instance->memory : memory_of(all, gpu);
    return memory->known ? OK : NOT_SUPPORTED;
}
typedef struct { uint64_t total, free, used; } memory_v1;
API int nvmlDeviceGetMemoryInfo(device handle, memory_v1 *info) {
    DEVICE(handle);
    memory_t memory;
    int answer = find_memory(all, gpu, handle, &memory);
    if (!answer) *info = (memory_v1){memory.total, memory.free, memory.used + memory.reserved};
    return leave(answer);
}
typedef struct { unsigned version; uint64_t total, reserved, free, used; } memory_v2;
API int nvmlDeviceGetMemoryInfo_v2(device handle, memory_v2 *info) {
    DEVICE(handle);
    memory_t memory;
    if (info->version != (sizeof *info | 2 << 24)) return leave(ARGUMENT_VERSION_MISMATCH);
    int answer = find_memory(all, gpu, handle, &memory);
    if (!answer) *info = (memory_v2){info->version, memory.total, memory.reserved, memory.free, memory.used};
    return leave(answer);
}
typedef struct { uint64_t total, free, used; } bar1;
API int nvmlDeviceGetBAR1MemoryInfo(device handle, bar1 *info) {
    DEVICE(handle);
    if (!gpu->has_bar1) return leave(NOT_SUPPORTED);
    *info = (bar1){gpu->bar1_total, gpu->bar1_total - gpu->bar1_used, gpu->bar1_used};
    return leave(OK);
}

typedef struct { unsigned pid; uint64_t used; unsigned gi, ci; } running;
static int processes_of(const gpu_t *gpu, device handle, char kind, unsigned *number, running *found) {
    unsigned room = *number, matching = 0;
    if ((handle & MIG) && !instance_of(gpu, handle)) return NOT_FOUND;
    for (int i = 0; i < gpu->processes; i++) {
        const process_t *each = &gpu->process[i];
        if (each->kind != kind) continue;
        if ((handle & MIG) && (each->gi != ((handle >> 8) & 0x7F) || each->ci != (handle & 0xFF))) continue;
        if (matching < room && found) found[matching] = (running){each->pid, each->used, each->gi, each->ci};
        matching++;
    }
    *number = matching;
    return matching > room ? INSUFFICIENT_SIZE : OK;
}
#define PROCESSES_OF(function, kind)                                        \
    API int function(device handle, unsigned *number, running *found) {     \
        DEVICE(handle);                                                     \
        return leave(processes_of(gpu, handle, kind, number, found));       \
    }
PROCESSES_OF(nvmlDeviceGetComputeRunningProcesses_v3, 'C')
PROCESSES_OF(nvmlDeviceGetGraphicsRunningProcesses_v3, 'G')
PROCESSES_OF(nvmlDeviceGetMPSComputeRunningProcesses_v3, 'M')
PROCESSES_OF(nvmlDeviceGetComputeRunningProcesses_v2, 'C')
PROCESSES_OF(nvmlDeviceGetGraphicsRunningProcesses_v2, 'G')
PROCESSES_OF(nvmlDeviceGetMPSComputeRunningProcesses_v2, 'M')

typedef struct { unsigned pid; uint64_t at; unsigned sm, memory, encoder, decoder; } sample;
API int nvmlDeviceGetProcessUtilization(device handle, sample *found, unsigned *number, uint64_t since) {
    DEVICE(handle);
    unsigned room = found ? *number : 0, matching = 0;
    for (int i = 0; i < gpu->processes; i++) {
        if (gpu->process[i].kind != 'C') continue;
        if (matching < room) found[matching] = (sample){gpu->process[i].pid, since + 1, 40, 20, 0, 0};
        matching++;
    }
    *number = matching;
    if (!matching) return leave(NOT_FOUND);
    return leave(matching > room ? INSUFFICIENT_SIZE : OK);
}

/* ---- load and health ---- */

typedef struct { unsigned gpu, memory; } rates;
API int nvmlDeviceGetUtilizationRates(device handle, rates *found) {
    DEVICE(handle);
    if (!gpu->has_utilisation) return leave(NOT_SUPPORTED);
    *found = (rates){gpu->gpu_percent, gpu->memory_percent};
    return leave(OK);
}
static int throttle(const gpu_t *gpu, uint64_t *reasons) {
    *reasons = gpu->throttle;
    return gpu->has_throttle ? OK : NOT_SUPPORTED;
}
API int nvmlDeviceGetCurrentClocksThrottleReasons(device handle, uint64_t *reasons) {
    DEVICE(handle);
    return leave(throttle(gpu, reasons));
}
API int nvmlDeviceGetCurrentClocksEventReasons(device handle, uint64_t *reasons) {
    DEVICE(handle);
    return leave(throttle(gpu, reasons));
}
API int nvmlDeviceGetTotalEccErrors(device handle, int kind, int counter, uint64_t *number) {
    DEVICE(handle);
    if (!gpu->has_ecc) return leave(NOT_SUPPORTED);
    *number = gpu->ecc[2 * (counter & 1) + (kind & 1)];
    return leave(OK);
}
API int nvmlDeviceGetRemappedRows(device handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    DEVICE(handle);
    if (!gpu->has_remapped) return leave(NOT_SUPPORTED);
    *corrected = gpu->remapped[0], *uncorrected = gpu->remapped[1];
    *pending = gpu->remapped[2], *failed = gpu->remapped[3];
    return leave(OK);
}
API int nvmlDeviceGetRetiredPages(device handle, int cause, unsigned *number, uint64_t *pages) {
    DEVICE(handle);
    if (!gpu->has_retired) return leave(NOT_SUPPORTED);
    unsigned room = *number, found = gpu->retired[cause & 1];
    *number = found;
    if (room < found) return leave(INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < found; i++) pages[i] = 0x1000u * (i + 1);
    return leave(OK);
}
API int nvmlDeviceGetRetiredPagesPendingStatus(device handle, int *pending) {
    DEVICE(handle);
    if (!gpu->has_retired) return leave(NOT_SUPPORTED);
    *pending = (int)gpu->retired[2];
    return leave(OK);
}
API int nvmlDeviceGetComputeMode(device handle, int *mode) {
    DEVICE(handle);
    *mode = (int)gpu->compute_mode;
    return leave(OK);
}

/* ---- MIG ---- */

API int nvmlDeviceGetMigMode(device handle, unsigned *current, unsigned *pending) {
    DEVICE(handle);
    *current = *pending = gpu->mig;
    return leave(gpu->has_mig ? OK : NOT_SUPPORTED);
}
API int nvmlDeviceGetMaxMigDeviceCount(device handle, unsigned *number) {
    DEVICE(handle);
    *number = gpu->has_mig ? 7 : 0;
    return leave(OK);
}
API int nvmlDeviceGetMigDeviceHandleByIndex(device handle, unsigned index, device *found) {
    DEVICE(handle);
    if (index >= (unsigned)gpu->instances) return leave(NOT_FOUND);
    const instance_t *each = &gpu->instance[index];
    *found = handle_of(slot_of(handle), MIG | each->gi << 8 | each->ci);
    return leave(OK);
}
API int nvmlDeviceIsMigDeviceHandle(device handle, unsigned *is) {
    DEVICE(handle);
    *is = (handle & MIG) != 0;
    return leave(OK);
}
API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device handle, device *found) {
    DEVICE(handle);
    *found = handle_of(slot_of(handle), 0);
    return leave(OK);
}
API int nvmlDeviceGetGpuInstanceId(device handle, unsigned *id) {
    DEVICE(handle);
    *id = (handle >> 8) & 0x7F;
    return leave(handle & MIG ? OK : NOT_SUPPORTED);
}
API int nvmlDeviceGetComputeInstanceId(device handle, unsigned *id) {
    DEVICE(handle);
    *id = handle & 0xFF;
    return leave(handle & MIG ? OK : NOT_SUPPORTED);
}

/* ---- XID events: a number that grows with each, and the code of the last ---- */

typedef struct { device handle; uint64_t type, data; unsigned gi, ci; } event;
API int nvmlEventSetCreate(uintptr_t *set) { DRIVER(); *set = 0xE0; return leave(OK); }
API int nvmlEventSetFree(uintptr_t set) { (void)set; DRIVER(); return leave(OK); }
API int nvmlDeviceGetSupportedEventTypes(device handle, uint64_t *types) { DEVICE(handle); *types = 8; return leave(OK); }
API int nvmlDeviceRegisterEvents(device handle, uint64_t types, uintptr_t set) {
    (void)types, (void)set;
    DEVICE(handle);
    return leave(OK);
}
API int nvmlEventSetWait_v2(uintptr_t set, event *found, unsigned milliseconds) {
    (void)set;
    DRIVER();
    for (unsigned waited = 0;; waited++) {
        for (unsigned i = 0; i < attached; i++) {
            const gpu_t *each = by_uuid(all, attached_uuid[i]);
            if (!each || each->xid_number <= xids_seen[i]) continue;
            xids_seen[i]++;
            *found = (event){handle_of(i, 0), 8, each->xid, WHOLE, WHOLE};
            return leave(OK);
        }
        if (waited >= milliseconds) return leave(TIMEOUT);
        pthread_mutex_unlock(&lock);
        pause_for(0.001);
        pthread_mutex_lock(&lock);
        all = script();
    }
}

/* ---- what other tools show: a number from the script, else not supported ---- */

static int value(const script_t *all, const gpu_t *gpu, const char *function, unsigned *number) {
    const rule_t *rule = rule_for(all, gpu, "value", function);
    if (rule) *number = (unsigned)rule->number;
    return rule ? OK : NOT_SUPPORTED;
}
#define VALUE(function)                                                     \
    API int function(device handle, unsigned *number) {                     \
        DEVICE(handle);                                                     \
        return leave(value(all, gpu, __func__, number));                    \
    }
#define VALUE_OF(function)                                                  \
    API int function(device handle, int what, unsigned *number) {           \
        (void)what;                                                         \
        DEVICE(handle);                                                     \
        return leave(value(all, gpu, __func__, number));                    \
    }
#define VALUE_AND_PERIOD(function)                                          \
    API int function(device handle, unsigned *number, unsigned *period) {   \
        DEVICE(handle);                                                     \
        *period = 167000;                                                   \
        return leave(value(all, gpu, __func__, number));                    \
    }
VALUE(nvmlDeviceGetFanSpeed)
VALUE(nvmlDeviceGetPowerUsage)
VALUE(nvmlDeviceGetPowerManagementLimit)
VALUE(nvmlDeviceGetEnforcedPowerLimit)
VALUE(nvmlDeviceGetPerformanceState)
VALUE(nvmlDeviceGetPersistenceMode)
VALUE(nvmlDeviceGetDisplayMode)
VALUE(nvmlDeviceGetDisplayActive)
VALUE_OF(nvmlDeviceGetTemperature)
VALUE_OF(nvmlDeviceGetClockInfo)
VALUE_OF(nvmlDeviceGetMaxClockInfo)
VALUE_OF(nvmlDeviceGetPcieThroughput)
VALUE_AND_PERIOD(nvmlDeviceGetEncoderUtilization)
VALUE_AND_PERIOD(nvmlDeviceGetDecoderUtilization)
API int nvmlDeviceGetCudaComputeCapability(device handle, int *major, int *minor) {
    DEVICE(handle);
    *major = 9, *minor = 0;
    return leave(OK);
}

/* ---- for the tests: how often a function was called ---- */

API unsigned kvtide_test_calls(const char *function) {
    unsigned number = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < CALLED && called[i].function; i++)
        if (!strcmp(called[i].function, function)) number = called[i].count;
    return pthread_mutex_unlock(&lock), number;
}

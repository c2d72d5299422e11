/* The script that the library plays: what the file says, parsed, and read again when the file changes. */
#pragma once

#include <stdint.h>

enum { GPUS = 16, PROCESSES = 2048, INSTANCES = 8, POINTS = 64, RULES = 64, NAME = 96 };

typedef struct {
    uint64_t total, used, free, reserved;
    int known;
} memory_t;

typedef struct {
    char kind; /* C, G or M */
    unsigned pid, gi, ci;
    uint64_t used;
} process_t;

typedef struct {
    unsigned gi, ci;
    char uuid[NAME];
    memory_t memory;
} instance_t;

/* What a function does instead of its work, or (verb "value") the number that it returns. */
typedef struct {
    char verb[8], function[NAME];
    long long number;
} rule_t;

typedef struct {
    rule_t rule[RULES];
    int count;
} rules_t;

typedef struct {
    char uuid[NAME], name[NAME];
    memory_t memory;
    struct { double at; uint64_t used; } point[POINTS];
    int points;
    uint64_t bar1_total, bar1_used, throttle, ecc[4], xid, xid_number;
    unsigned gpu_percent, memory_percent, remapped[4], retired[3], mig, compute_mode;
    int has_bar1, has_utilisation, has_throttle, has_ecc, has_remapped, has_retired, has_mig;
    int lost;
    process_t process[PROCESSES];
    int processes;
    instance_t instance[INSTANCES];
    int instances;
    rules_t rules;
} gpu_t;

typedef struct {
    char driver[NAME];
    int cuda;
    double began; /* CLOCK_MONOTONIC, seconds: where the curves begin */
    gpu_t gpu[GPUS];
    int gpus;
    rules_t rules;
} script_t;

/* Read the file named by KVTIDE_TEST_NVML_SCRIPT again if it has changed; the caller holds the lock. */
const script_t *script(void);

/* The rule for this function, first the GPU's own (which may be NULL), then the one for all; NULL where there is none. */
const rule_t *rule_for(const script_t *all, const gpu_t *gpu, const char *verb, const char *function);

// Measures what this machine's memory and vector units can do at best. Built for the target's ISA.
//   probe THREADS L2_BYTES L3_BYTES DRAM_BYTES ROUNDS  ->  lines "mix/class bytes-per-second", "flops/f32 …"
// Bytes count what the program reads and writes, not what the caches move. Every figure is the best
// of ROUNDS separated runs: a ceiling is what the machine can do, not what it did while disturbed.
#include <immintrin.h>
#include <signal.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#if defined(__AVX512F__)
#define WIDTH 64
#define STREAM(p, v) _mm512_stream_ps((float*)(p), (__m512)(v))
#elif defined(__AVX__)
#define WIDTH 32
#define STREAM(p, v) _mm256_stream_ps((float*)(p), (__m256)(v))
#else
#define WIDTH 16
#define STREAM(p, v) _mm_stream_ps((float*)(p), (__m128)(v))
#endif
typedef float vec __attribute__((vector_size(WIDTH)));
typedef double vecd __attribute__((vector_size(WIDTH)));
#define STEP 4  // vectors per iteration

enum { READ, WRITE, COPY, STREAM_COPY, TWO_ONE, TWO_ONE_STREAM, TWO_TWO, TWO_TWO_STREAM, MIXES };
static const char* const NAMES[MIXES] = {"read", "write", "copy", "stream", "2:1", "2:1", "2:2", "2:2"};
static const int ARRAYS[MIXES] = {1, 1, 2, 2, 3, 3, 4, 4};
static volatile float sink;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pass(int mix, vec* a, vec* b, vec* c, vec* d, int64_t n) {
    // Accumulators by name: an indexed array of them would live in memory.
    vec s0 = {1}, s1 = {2}, s2 = {3}, s3 = {4};
    switch (mix) {
        case READ:
            for (int64_t i = 0; i < n; i += STEP) {
                s0 += a[i];
                s1 += a[i + 1];
                s2 += a[i + 2];
                s3 += a[i + 3];
            }
            s0 += s1 + s2 + s3;
            sink = s0[0];
            break;
        case WRITE:
            for (int64_t i = 0; i < n; i += STEP)
                for (int k = 0; k < STEP; k++) STREAM(a + i + k, s3);
            break;
        case COPY:
            for (int64_t i = 0; i < n; i += STEP)
                for (int k = 0; k < STEP; k++) b[i + k] = a[i + k];
            break;
        case STREAM_COPY:
            for (int64_t i = 0; i < n; i += STEP)
                for (int k = 0; k < STEP; k++) STREAM(b + i + k, a[i + k]);
            break;
        case TWO_ONE:
            for (int64_t i = 0; i < n; i += STEP)
                for (int k = 0; k < STEP; k++) c[i + k] = a[i + k] + b[i + k];
            break;
        case TWO_ONE_STREAM:
            for (int64_t i = 0; i < n; i += STEP)
                for (int k = 0; k < STEP; k++) STREAM(c + i + k, a[i + k] + b[i + k]);
            break;
        case TWO_TWO:
            for (int64_t i = 0; i < n; i += STEP)
                for (int k = 0; k < STEP; k++) {
                    vec x = a[i + k], y = b[i + k];
                    c[i + k] = x + y;
                    d[i + k] = x - y;
                }
            break;
        case TWO_TWO_STREAM:
            for (int64_t i = 0; i < n; i += STEP)
                for (int k = 0; k < STEP; k++) {
                    vec x = a[i + k], y = b[i + k];
                    STREAM(c + i + k, x + y);
                    STREAM(d + i + k, x - y);
                }
            break;
    }
}

// Bytes per second of one mix over `bytes` in all, split between the threads.
static double bandwidth(int mix, char* memory, int64_t bytes, int threads, double seconds) {
    const int64_t share = bytes / threads / ARRAYS[mix] / (STEP * WIDTH) * (STEP * WIDTH);
    if (share == 0) return 0;
    int repeats = 1;
    double best = 0;
    for (int attempt = 0; attempt < 4; attempt++) {
        double began = 0, took = 0;
#pragma omp parallel num_threads(threads)
        {
            char* mine = memory + (int64_t)omp_get_thread_num() * (bytes / threads / 4096 * 4096);
            vec *a = (vec*)mine, *b = (vec*)(mine + share), *c = (vec*)(mine + 2 * share), *d = (vec*)(mine + 3 * share);
            if (!attempt) pass(mix, a, b, c, d, share / WIDTH);
#pragma omp barrier
#pragma omp master
            began = now();
#pragma omp barrier
            for (int r = 0; r < repeats; r++) {
                pass(mix, a, b, c, d, share / WIDTH);
                __asm__ volatile("" ::: "memory");
            }
            _mm_sfence();
#pragma omp barrier
#pragma omp master
            took = now() - began;
        }
        double rate = (double)share * ARRAYS[mix] * threads * repeats / took;
        if (took >= 0.5 * seconds && rate > best) best = rate;
        if (took < 0.5 * seconds) repeats = (int)(repeats * (took > 0 ? seconds / took : 64)) + 1;
        if (took > 4 * seconds && attempt) break;  // larger than the caches: the other rounds look again
    }
    return best;
}

// Twelve independent chains of multiply-add per thread: enough to hide their latency.
#define CHAINS 12
#define STEP3(a, b, c) a = a * m + p, b = b * m + p, c = c * m + p
#define FLOPS(name, type)                                                                              \
    __attribute__((noinline)) static float name##_chain(int64_t count) {                               \
        type m = {(float)0.999}, p = {(float)1e-3};                                                    \
        type a = p, b = p + a, c = p + b, d = p + c, e = p + d, f = p + e, g = p + f, h = p + g, i = p + h, \
             j = p + i, k = p + j, l = p + k;                                                          \
        for (int64_t r = 0; r < count; r++) {                                                          \
            STEP3(a, b, c), STEP3(d, e, f), STEP3(g, h, i), STEP3(j, k, l);                            \
            __asm__ volatile("" : "+x"(a), "+x"(b), "+x"(c));                                          \
        }                                                                                              \
        type total = a + b + c + d + e + f + g + h + i + j + k + l;                                    \
        return (float)total[0];                                                                        \
    }                                                                                                  \
    static double name(int threads, int64_t count) {                                                   \
        double began = 0, took = 0;                                                                    \
        _Pragma("omp parallel num_threads(threads)") {                                                 \
            sink = name##_chain(count / 16);                                                           \
            _Pragma("omp barrier") _Pragma("omp master") began = now();                                \
            _Pragma("omp barrier") sink = name##_chain(count);                                         \
            _Pragma("omp barrier") _Pragma("omp master") took = now() - began;                         \
        }                                                                                              \
        const double lanes = WIDTH / (double)sizeof(((type){0})[0]);                                   \
        return 2.0 * CHAINS * lanes * (double)count * threads / took;                                  \
    }
FLOPS(flops_f32, vec)
FLOPS(flops_f64, vecd)

int main(int argc, char** argv) {
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);  // nobody is left to read what it says
    if (argc != 6) return 2;
    const int threads = atoi(argv[1]), rounds = atoi(argv[5]);
    const char* const classes[3] = {"l2", "l3", "dram"};
    const int64_t sizes[3] = {atoll(argv[2]), atoll(argv[3]), atoll(argv[4])};
    int64_t most = 1 << 20;
    for (int s = 0; s < 3; s++) most = sizes[s] > most ? sizes[s] : most;
    char* memory = (char*)mmap(0, (size_t)most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    madvise(memory, (size_t)most, MADV_NOHUGEPAGE);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t page = 0; page < most / 4096; page++) memset(memory + page * 4096, 0, 4096);
    double best[3][MIXES] = {{0}}, f32 = 0, f64 = 0;
    for (int round = 0; round < rounds; round++) {
        for (int s = 0; s < 3; s++)
            for (int mix = 0; mix < MIXES; mix++) {
                double rate = sizes[s] > 0 ? bandwidth(mix, memory, sizes[s], threads, 0.003) : 0;
                best[s][mix] = rate > best[s][mix] ? rate : best[s][mix];
                // Spread over the whole time: clocks rise and fall with what the neighbours of these cores do.
                double a = flops_f32(threads, 200000), b = flops_f64(threads, 200000);
                f32 = a > f32 ? a : f32;
                f64 = b > f64 ? b : f64;
            }
    }
    for (int s = 0; s < 3; s++)
        for (int mix = 0; mix < MIXES && sizes[s] > 0; mix++) printf("%s/%s %.6g\n", NAMES[mix], classes[s], best[s][mix]);
    printf("flops/f32 %.6g\nflops/f64 %.6g\n", f32, f64);
    return 0;
}

/* Calls one kernel: `kernels NAME THREADS`, the pointers' array on the standard input, what it points to then on the
   standard output. KERNELS lists the kernels as X(name). A slot is two i64 and content: 0 and a number, or 1, a number of
   bytes, and these bytes. Ends with 3 if a kernel writes beside its memory. */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void entry(void **);

#define X(name) extern entry name; extern const int64_t name##_info[6];
KERNELS
#undef X

#define X(name) {#name, name, name##_info},
static const struct { const char *name; entry *call; const int64_t *info; } kernels[] = {KERNELS};

enum { GUARD = 256, GUARD_BYTE = 0x5a, ALIGNMENT = 64 };

static _Thread_local int number;
static int count = 1;
static pthread_barrier_t barrier;
static entry *called;
static void **slots;

int omp_get_thread_num(void) { return number; }
int omp_get_num_threads(void) { return count; }
void GOMP_barrier(void) { if (count > 1) pthread_barrier_wait(&barrier); }

static void *member(void *of) {
  number = (int)(intptr_t)of;
  called(slots);
  return 0;
}

static void get(void *into, size_t bytes) {
  if (fread(into, 1, bytes, stdin) != bytes) exit(2);
}

static int64_t get_number(void) {
  int64_t value;
  get(&value, sizeof value);
  return value;
}

/* As torch's allocator: 64-byte alignment, no more. */
static char *memory(size_t bytes) {
  char *start = aligned_alloc(ALIGNMENT, (bytes + 2 * GUARD + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  memset(start, GUARD_BYTE, GUARD);
  memset(start + GUARD + bytes, GUARD_BYTE, GUARD);
  return start + GUARD;
}

static void check(const char *found, size_t bytes) {
  for (int n = 0; n < GUARD; n++)
    if (found[n - GUARD] != GUARD_BYTE || found[bytes + n] != GUARD_BYTE) exit(3);
}

int main(int argc, char **argv) {
  size_t at = 0, total = sizeof kernels / sizeof *kernels;
  while (argc == 3 && at < total && strcmp(kernels[at].name, argv[1])) at++;
  if (argc != 3 || at == total) return 2;
  const int64_t *info = kernels[at].info;
  int64_t size = get_number(), *bytes = calloc(size, sizeof *bytes);
  slots = calloc(size + 1, sizeof *slots);
  for (int64_t n = 0; n < size; n++) {
    bytes[n] = -1;
    if (!get_number()) { slots[n] = (void *)get_number(); continue; }
    bytes[n] = get_number();
    slots[n] = memory(bytes[n]);
    get(slots[n], bytes[n]);
  }
  count = atoi(argv[2]);
  if (!info[5] && count > info[2]) count = (int)info[2];
  size_t workspace = info[3] + count * info[4];
  slots[size] = memory(workspace);
  called = kernels[at].call;
  pthread_barrier_init(&barrier, 0, count);
  pthread_t threads[64];
  for (int n = 1; n < count; n++) pthread_create(&threads[n], 0, member, (void *)(intptr_t)n);
  member(0);
  for (int n = 1; n < count; n++) pthread_join(threads[n], 0);
  check(slots[size], workspace);
  for (int64_t n = 0; n < size; n++)
    if (bytes[n] >= 0) {
      check(slots[n], bytes[n]);
      fwrite(slots[n], 1, bytes[n], stdout);
    }
  return 0;
}

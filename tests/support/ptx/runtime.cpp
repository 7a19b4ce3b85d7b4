/*
 * runtime: executes translated kernels and checks every access:
 *
 *     global   aligned; inside one operand of the operator, or inside memory that holds none of
 *              them (workspace), which the operator has written before it reads it; an operand that
 *              is only read is not written
 *     shared   aligned; inside one variable; written before it is read
 *     races    two threads at one place, one of which writes, with no barrier between them; in
 *              global memory also two blocks of a launch
 *
 * A place is two bytes. It remembers its last writer, and the readers since: one, several of the
 * block between two barriers, or several blocks. A race is noticed when the second access comes, in
 * whichever order the emulation runs the threads.
 *
 * Of faults, the first of each kind and kernel is kept with its place. A process appends one line
 * of numbers to the file in CCSTREAM_PTX_REPORT when it ends, and its faults.
 */
#include "tests/support/ptx/runtime.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

extern const struct ptx_chunk *const ptx_chunks[]; /* until NULL */
extern const bool ptx_is_complete;                 /* a kernel that is not in them is a fault */

const struct executor_host *ptx_host;

enum { SHARED_BYTES = 232448, MAX_THREADS = 1024, WARP = 32, PLACE_BYTES = 2, MAX_WINDOWS = 16 };

/* ---- faults and the report ---- */

static const struct ptx_kernel *current;

struct fault {
    uint64_t count;
    std::string first;
};

/* By kernel and operator, "-": none. */
static std::map<std::pair<std::string, std::string>, uint64_t> *launches;
static std::map<std::string, fault> *faults;
static uint64_t global_accesses, shared_accesses;

/* Lines of the current kernel that have accessed memory, its branches that were taken, and its
 * barriers without which two accesses would have raced. */
enum { MAX_LINES = 1 << 18 };
static std::map<std::string, std::vector<bool>> *lines;
static std::vector<bool> *own_lines;

static void note(const char *what, uint64_t at, unsigned size, unsigned line) {
    fault &f = (*faults)[std::string(current->name) + ": " + what];
    if (f.count++ == 0) {
        char text[200];
        const struct emulation_size *b = ptx_host->block;
        (void)snprintf(text, sizeof text,
                       "line %u of the PTX, block (%u,%u,%u), thread %u: %u bytes at %#llx", line,
                       b->x, b->y, b->z, ptx_host->thread->x, size, (unsigned long long)at);
        f.first = text;
    }
}

static void report() {
    const char *path = getenv("CCSTREAM_PTX_REPORT");
    FILE *out = path != nullptr ? fopen(path, "a") : stderr;
    if (out == nullptr) {
        return;
    }
    std::string text = "accesses " + std::to_string(global_accesses) + " " +
                       std::to_string(shared_accesses) + "\n";
    for (const auto &l : *launches) {
        text += "kernel " + l.first.first + " " + l.first.second + " " + std::to_string(l.second) +
                "\n";
    }
    for (const auto &l : *lines) {
        text += "lines " + l.first;
        for (size_t i = 0; i < l.second.size(); i++) {
            text += l.second[i] ? " " + std::to_string(i) : "";
        }
        text += "\n";
    }
    for (const auto &f : *faults) {
        text += "fault " + std::to_string(f.second.count) + " " + f.first + "; first at " +
                f.second.first + "\n";
    }
    (void)fwrite(text.data(), 1, text.size(), out); /* one write: processes share the file */
    (void)fflush(out);
}

/* At once: what follows may not return. */
[[noreturn]] void ptx_stop(const char *what) {
    note(what, 0, 0, 0);
    report();
    (void)fprintf(stderr, "ptx: %s: %s\n", current->name, what);
    _exit(99);
}

/* ---- places ---- */

struct place {
    uint32_t write_launch, write_block, read_launch, read_block;
    uint16_t write_thread, write_epoch, read_thread, read_epoch;
    uint8_t readers; /* 0: one thread, 1: several of a block since its last barrier, 2: blocks */
    bool on_its_way; /* a copy that its thread has not waited for */
};

static uint32_t launch_serial, block_serial;
static uint32_t own_block;
static uint16_t own_thread, own_epoch;
static uint32_t own_barrier; /* line of the barrier that began the epoch */
static uint16_t epochs[MAX_THREADS];
static uint32_t barriers[MAX_THREADS];

/* Of the running thread: set at its begin and whenever it has waited. */
static void resume() {
    const struct emulation_size *t = ptx_host->thread;
    const struct emulation_size *n = ptx_host->threads;
    const struct emulation_size *b = ptx_host->block;
    own_thread = (uint16_t)(t->x + n->x * (t->y + n->y * t->z));
    own_block = b->x + ptx_host->blocks->x * (b->y + ptx_host->blocks->y * b->z) + 1;
    own_epoch = epochs[own_thread];
    own_barrier = barriers[own_thread];
}

enum order { ORDERED, BY_LAST_BARRIER, UNORDERED };

/* What orders an access of this thread behind one that it conflicts with: `several` threads of a
 * block, or one. */
static order order_of(uint32_t block, bool several, uint16_t thread, uint16_t epoch) {
    if (block != own_block) {
        return UNORDERED;
    }
    if (!several && thread == own_thread) {
        return ORDERED;
    }
    return epoch == own_epoch ? UNORDERED : epoch + 1 == own_epoch ? BY_LAST_BARRIER : ORDERED;
}

static order order_of_write(const place *p, uint32_t launch) {
    return p->write_launch == launch
               ? order_of(p->write_block, false, p->write_thread, p->write_epoch)
               : ORDERED;
}

static order order_of_reads(const place *p, uint32_t launch) {
    if (p->read_launch != launch) {
        return ORDERED;
    }
    return p->readers == 2
               ? UNORDERED
               : order_of(p->read_block, p->readers == 1, p->read_thread, p->read_epoch);
}

static const char *check_read(place *p, uint32_t launch) {
    const order after_write = order_of_write(p, launch);
    if (after_write == BY_LAST_BARRIER) {
        (*own_lines)[own_barrier] = true;
    }
    if (p->read_launch != launch) {
        p->read_launch = launch;
        p->read_block = own_block;
        p->readers = 0;
    } else if (p->read_block != own_block) {
        p->readers = 2;
    } else if (p->readers < 2) {
        p->readers =
            p->read_epoch == own_epoch && (p->readers == 1 || p->read_thread != own_thread);
    }
    p->read_thread = own_thread;
    p->read_epoch = own_epoch;
    return after_write == UNORDERED ? "race: reads what another thread writes" : nullptr;
}

static const char *check_write(place *p, uint32_t launch) {
    const order after_write = order_of_write(p, launch);
    const order after_reads = order_of_reads(p, launch);
    if (after_write == BY_LAST_BARRIER || after_reads == BY_LAST_BARRIER) {
        (*own_lines)[own_barrier] = true;
    }
    p->write_launch = launch;
    p->write_block = own_block;
    p->write_thread = own_thread;
    p->write_epoch = own_epoch;
    return after_write == UNORDERED   ? "race: writes what another thread writes"
           : after_reads == UNORDERED ? "race: writes what another thread reads"
                                      : nullptr;
}

/* ---- global memory ---- */

struct region {
    uint64_t begin, end;
    bool is_inner;    /* within another */
    bool has_inner;   /* only those may be accessed */
    bool is_implicit; /* an operand in memory that was not announced */
    bool is_constant;
    place *places; /* reserved at the first access, backed where it is touched */
};

static std::mutex regions_lock;
static std::map<uint64_t, region> *regions; /* by begin */
static struct operand_set {
    std::string op;
    std::vector<executor_operand> all;
} no_operands = {"-", {}};
static std::vector<operand_set> *operand_sets;

/* Where the kernels of this launch have been already. */
static struct window {
    uint64_t begin, end;
    bool is_written;
    bool is_flag; /* of faults: several threads may write the same */
    bool is_workspace;
    uint64_t places_begin;
    place *places;
} windows[MAX_WINDOWS];
static unsigned windows_count, windows_next;
static unsigned operands_now;
static uint32_t operator_launch; /* its first */

static region *region_of(uint64_t at) {
    auto i = regions->upper_bound(at);
    if (i == regions->begin()) {
        return nullptr;
    }
    --i;
    return at < i->second.end ? &i->second : nullptr;
}

/* The region that holds the byte, or the one around it. */
static region *outermost(uint64_t at) {
    auto i = regions->upper_bound(at);
    while (i != regions->begin()) {
        --i;
        if (!i->second.is_inner) {
            return at < i->second.end ? &i->second : nullptr;
        }
    }
    return nullptr;
}

static size_t places_bytes(const region &r) {
    return ((r.end - r.begin) / PLACE_BYTES + 1) * sizeof(place);
}

static std::map<uint64_t, region>::iterator erase(std::map<uint64_t, region>::iterator i) {
    if (i->second.places != nullptr) {
        (void)munmap(i->second.places, places_bytes(i->second));
    }
    windows_count = 0;
    return regions->erase(i);
}

/* A region of memory that is free: implicit ones there have ended. */
static region *add_region(uint64_t begin, uint64_t end, bool is_inner, bool is_implicit) {
    for (auto i = regions->begin(); i != regions->end();) {
        const bool meets = i->second.begin < end && i->second.end > begin;
        i = meets && i->second.is_implicit ? erase(i) : std::next(i);
    }
    windows_count = 0;
    return &((*regions)[begin] = region{begin, end, is_inner, false, is_implicit, false, nullptr});
}

static void appears(const void *data, size_t size_bytes) {
    const std::lock_guard<std::mutex> lock(regions_lock);
    const uint64_t begin = (uint64_t)(uintptr_t)data;
    region *around = outermost(begin);
    const bool is_inner = around != nullptr && !around->is_implicit && around->begin < begin;
    if (is_inner) {
        around->has_inner = true;
    }
    (void)add_region(begin, begin + size_bytes, is_inner, false);
}

static void disappears(const void *data) {
    const std::lock_guard<std::mutex> lock(regions_lock);
    auto i = regions->find((uint64_t)(uintptr_t)data);
    if (i == regions->end()) {
        return;
    }
    const uint64_t end = i->second.end;
    while (i != regions->end() && i->second.begin < end) { /* with those within it */
        i = erase(i);
    }
}

/* Larger regions are those of tests that run some of the blocks: without races, which would need
 * fourteen times the memory. */
static const uint64_t MAX_RACES_BYTES = 1 << 30;

static void reserve_places(region *r) {
    if (r->places == nullptr && r->end - r->begin <= MAX_RACES_BYTES) {
        void *room = mmap(nullptr, places_bytes(*r), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED) {
            ptx_stop("no memory for what is known of each byte");
        }
        r->places = (place *)room;
    }
}

static unsigned note_operands(const char *op, const executor_operand *all, int count) {
    const std::lock_guard<std::mutex> lock(regions_lock);
    operand_sets->push_back({op, {all, all + count}});
    return (unsigned)operand_sets->size() - 1;
}

/* The operand of this launch that has the byte; of several the first that may be accessed so. */
static const executor_operand *operand_at(uint64_t at, bool writes, region *whole) {
    const executor_operand *found = nullptr;
    for (const executor_operand &o : (*operand_sets)[operands_now].all) {
        const uint64_t begin = (uint64_t)(uintptr_t)o.data;
        const bool open = o.size_bytes == SIZE_MAX; /* to the end of what holds it */
        const bool held = whole != nullptr && begin >= whole->begin && begin < whole->end;
        if (at >= begin && (open ? held : at < begin + o.size_bytes) &&
            (found == nullptr || (writes && !found->is_written))) {
            found = &o;
        }
    }
    return found;
}

static bool holds_operand(const region *r) {
    for (const executor_operand &o : (*operand_sets)[operands_now].all) {
        const uint64_t begin = (uint64_t)(uintptr_t)o.data;
        if (begin >= r->begin && begin < r->end) {
            return true;
        }
    }
    return false;
}

/* What may be accessed around the byte, or why it may not. */
static const char *find_window(window *out, uint64_t at, unsigned size, bool writes) {
    const std::lock_guard<std::mutex> lock(regions_lock);
    region *inner = region_of(at);
    region *whole = outermost(at);
    const executor_operand *o = operand_at(at, writes, whole);
    if (o != nullptr) {
        const uint64_t begin = (uint64_t)(uintptr_t)o->data;
        if (whole == nullptr || (whole->is_implicit && whole->end - begin < o->size_bytes)) {
            whole = add_region(begin, begin + o->size_bytes, false, true);
        }
        const uint64_t end = o->size_bytes == SIZE_MAX ? whole->end : begin + o->size_bytes;
        reserve_places(whole);
        *out = window{
            begin,        std::min(end, whole->end), o->is_written, false, false, whole->begin,
            whole->places};
        return at + size > end            ? "crosses the end of an operand"
               : end > whole->end         ? "an operand is larger than its memory"
               : writes && !o->is_written ? "writes to an operand that is only read"
                                          : nullptr;
    }
    if (whole == nullptr) {
        return "outside of all memory";
    }
    if (holds_operand(whole)) {
        return "outside of the operands";
    }
    if (inner == nullptr || (inner == whole && whole->has_inner) || at + size > inner->end) {
        return "outside of its memory";
    }
    reserve_places(whole);
    const bool is_flag = inner->end - inner->begin == sizeof(int32_t);
    *out = window{inner->begin, inner->end,   true, is_flag, !is_flag && !inner->is_constant,
                  whole->begin, whole->places};
    return nullptr;
}

static const window *window_of(uint64_t at, unsigned size, bool writes, unsigned line) {
    for (unsigned i = 0; i < windows_count; i++) {
        const window &w = windows[i];
        if (at >= w.begin && at + size <= w.end && (w.is_written || !writes)) {
            return &w;
        }
    }
    window w;
    const char *wrong = find_window(&w, at, size, writes);
    if (wrong != nullptr) {
        note(wrong, at, size, line);
        return nullptr;
    }
    windows_next = windows_count == 0 ? 0 : windows_next; /* they were forgotten */
    window *to = &windows[windows_next++ % MAX_WINDOWS];
    windows_count = std::min<unsigned>(windows_count + 1, MAX_WINDOWS);
    *to = w;
    return to;
}

static const unsigned char zeros[16] = {0};

/* Whether all that is written is seen: not where some kernels run as C++, or cuDNN runs too. */
static bool sees_all_writes() {
    static const bool sees = ptx_is_complete && getenv("CCSTREAM_PTX_UNSEEN_WRITES") == nullptr;
    return sees;
}

const unsigned char *ptx_load_global(uint64_t at, unsigned size, unsigned line) {
    global_accesses++;
    (*own_lines)[line] = true;
    if (at % size != 0) {
        note("misaligned", at, size, line);
        return zeros;
    }
    const window *w = window_of(at, size, false, line);
    if (w == nullptr) {
        return zeros;
    }
    place *p = w->places + (at - w->places_begin) / PLACE_BYTES;
    for (unsigned i = 0; i < size && w->places != nullptr; i += PLACE_BYTES, p++) {
        const char *race = check_read(p, launch_serial);
        if (w->is_workspace && operands_now != 0 && p->write_launch < operator_launch &&
            sees_all_writes()) {
            race = "reads workspace that its operator has not written";
        }
        if (race != nullptr) {
            note(race, at, size, line);
        }
    }
    return (const unsigned char *)(uintptr_t)at;
}

void ptx_store_global(uint64_t at, const void *value, unsigned size, unsigned line) {
    global_accesses++;
    (*own_lines)[line] = true;
    if (at % size != 0) {
        note("misaligned", at, size, line);
        return;
    }
    const window *w = window_of(at, size, true, line);
    if (w == nullptr) {
        return;
    }
    place *p = w->places + (at - w->places_begin) / PLACE_BYTES;
    void *to = (void *)(uintptr_t)at;
    for (unsigned i = 0; i < size && w->places != nullptr; i += PLACE_BYTES, p++) {
        const char *race = check_write(p, launch_serial);
        if (race != nullptr && !(w->is_flag && memcmp(to, value, size) == 0)) {
            note(race, at, size, line);
        }
    }
    memcpy(to, value, size);
}

/* ---- shared memory ---- */

alignas(16) static unsigned char shared_memory[SHARED_BYTES];
static place shared_places[SHARED_BYTES / PLACE_BYTES];
static uint64_t seen_launch;
static uint32_t seen_block;

static void note_block() {
    if (seen_launch != launch_serial || seen_block != own_block) {
        seen_launch = launch_serial;
        seen_block = own_block;
        block_serial++;
    }
}

static bool is_variable(uint32_t at, unsigned size) {
    for (int i = 0; i < current->shared_count; i++) {
        if (at >= current->shared[i].begin && at + size <= current->shared[i].end) {
            return true;
        }
    }
    return false;
}

static bool allows_shared(uint32_t at, unsigned size, unsigned line) {
    shared_accesses++;
    (*own_lines)[line] = true;
    if (at % size != 0) {
        note("misaligned in shared memory", at, size, line);
        return false;
    }
    if (!is_variable(at, size)) {
        note("outside of shared variables", at, size, line);
        return false;
    }
    return true;
}

static bool is_on_its_way(const place *p) {
    return p->on_its_way && p->write_launch == block_serial;
}

const unsigned char *ptx_load_shared(uint32_t at, unsigned size, unsigned line) {
    if (!allows_shared(at, size, line)) {
        return zeros;
    }
    place *p = &shared_places[at / PLACE_BYTES];
    for (unsigned i = 0; i < size; i += PLACE_BYTES, p++) {
        const char *race = check_read(p, block_serial);
        if (is_on_its_way(p)) {
            race = "reads shared memory before a copy to it is waited for";
        } else if (p->write_launch != block_serial) {
            race = "reads shared memory that was not written";
        }
        if (race != nullptr) {
            note(race, at, size, line);
        }
    }
    return shared_memory + at;
}

static void write_shared(uint32_t at, const void *value, unsigned size, unsigned line) {
    place *p = &shared_places[at / PLACE_BYTES];
    for (unsigned i = 0; i < size; i += PLACE_BYTES, p++) {
        const bool early = is_on_its_way(p);
        const char *race = check_write(p, block_serial);
        p->on_its_way = false;
        if (early) {
            race = "writes shared memory before a copy to it is waited for";
        }
        if (race != nullptr) {
            note(race, at, size, line);
        }
    }
    memcpy(shared_memory + at, value, size);
}

void ptx_store_shared(uint32_t at, const void *value, unsigned size, unsigned line) {
    if (allows_shared(at, size, line)) {
        write_shared(at, value, size, line);
    }
}

unsigned char *ptx_inside(unsigned char *p, unsigned size, unsigned char *begin, unsigned total) {
    if (p < begin || p + size > begin + total) {
        ptx_stop("outside of its local memory");
    }
    return p;
}

/* ---- copies ---- */

struct copy {
    uint32_t to;
    unsigned size, line, group; /* group: 0 while it is not committed */
    unsigned char data[16];
};

static struct {
    std::vector<copy> waiting;
    unsigned groups; /* committed */
} * copies;          /* of each thread */

void ptx_copy_later(uint32_t to, uint64_t from, unsigned size, uint32_t read_bytes, unsigned line) {
    copy c = {to, size, line, 0, {0}};
    if (read_bytes != 0 && read_bytes != size) {
        ptx_stop("a copy of a part");
    }
    if (read_bytes > 0) {
        memcpy(c.data, ptx_load_global(from, size, line), size);
    } else if (from % size != 0) {
        note("misaligned", from, size, line);
    }
    if (!allows_shared(to, size, line)) {
        return;
    }
    place *p = &shared_places[to / PLACE_BYTES];
    for (unsigned i = 0; i < size; i += PLACE_BYTES, p++) {
        const char *race = check_write(p, block_serial);
        if (race != nullptr) {
            note(race, to, size, line);
        }
        p->on_its_way = true;
    }
    copies[own_thread].waiting.push_back(c);
}

void ptx_copies_commit() {
    copies[own_thread].groups++;
    for (copy &c : copies[own_thread].waiting) {
        c.group = c.group == 0 ? copies[own_thread].groups : c.group;
    }
}

void ptx_copies_wait(unsigned groups_left) {
    auto &own = copies[own_thread];
    std::vector<copy> left;
    for (const copy &c : own.waiting) {
        if (c.group == 0 || c.group + groups_left > own.groups) {
            left.push_back(c);
            continue;
        }
        place *p = &shared_places[c.to / PLACE_BYTES];
        for (unsigned i = 0; i < c.size; i += PLACE_BYTES) {
            p++->on_its_way = false;
        }
        write_shared(c.to, c.data, c.size, c.line);
    }
    own.waiting.swap(left);
}

/* ---- threads ---- */

void ptx_taken(unsigned line) {
    (*own_lines)[line] = true;
}

void ptx_barrier(unsigned line) {
    const uint16_t next = (uint16_t)(own_epoch + 1);
    const uint16_t thread = own_thread;
    ptx_host->wait(EMULATION_BLOCK);
    epochs[thread] = next;
    barriers[thread] = line;
    resume();
}

static uint64_t exchange(uint64_t value, uint32_t from) {
    const uint64_t got = ptx_host->exchange(value, from);
    resume();
    return got;
}

static void full_warp(uint32_t mask) {
    if (mask != 0xffffffffu) {
        ptx_stop("a mask of a part of a warp");
    }
}

uint32_t
ptx_shuffle_bfly(uint32_t value, uint32_t lanes, uint32_t clamp, uint32_t mask, bool *valid) {
    const uint32_t lane = ptx_lane();
    const uint32_t segments = clamp >> 8 & 31;
    const uint32_t last = (lane & segments) | (clamp & 31 & ~segments);
    const uint32_t from = lane ^ (lanes & 31);
    full_warp(mask);
    *valid = from <= last;
    return (uint32_t)exchange(value, *valid ? from : lane);
}

uint32_t
ptx_shuffle_idx(uint32_t value, uint32_t lane, uint32_t clamp, uint32_t mask, bool *valid) {
    const uint32_t own = ptx_lane();
    const uint32_t segments = clamp >> 8 & 31;
    const uint32_t last = (own & segments) | (clamp & 31 & ~segments);
    const uint32_t from = (own & segments) | (lane & 31 & ~segments);
    full_warp(mask);
    *valid = from <= last;
    return (uint32_t)exchange(value, *valid ? from : own);
}

/* What lanes give each other, in two rooms by turn: a lane that is ahead writes to the other. */
static union {
    uint32_t rows[WARP];
    uint32_t words[WARP][6];
} rooms[MAX_THREADS / WARP][2];
static uint8_t turns[MAX_THREADS];

void ptx_matrices(uint32_t got[4], uint32_t row, bool transposed, unsigned line) {
    const uint32_t lane = ptx_lane();
    const uint32_t g = lane / 4;
    const uint32_t q = lane % 4;
    auto &room = rooms[own_thread / WARP][turns[own_thread] ^= 1];
    if (row % 16 != 0) {
        note("misaligned in shared memory", row, 16, line);
    }
    room.rows[lane] = row;
    (void)exchange(0, 0);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t *matrix = room.rows + 8 * i;
        if (transposed) {
            const uint32_t low = at<uint16_t>(ptx_load_shared(matrix[2 * q] + 2 * g, 2, line));
            const uint32_t high = at<uint16_t>(ptx_load_shared(matrix[2 * q + 1] + 2 * g, 2, line));
            got[i] = low | high << 16;
        } else {
            got[i] = at<uint32_t>(ptx_load_shared(matrix[g] + 4 * q, 4, line));
        }
    }
}

void ptx_mma(float d[4], const uint32_t ab[6]) {
    const uint32_t lane = ptx_lane();
    const uint32_t g = lane / 4;
    const uint32_t q = lane % 4;
    auto &room = rooms[own_thread / WARP][turns[own_thread] ^= 1];
    memcpy(room.words[lane], ab, sizeof room.words[lane]);
    (void)exchange(0, 0);
    /* Element (row, k) of a: lane 4 (row % 8) + k % 8 / 2, word row / 8 + k / 8 * 2, half k % 2;
     * element (k, column) of b: lane 4 column + k % 8 / 2, word k / 8. Products are exact in
     * double; the order of the tensor core's own sum is not defined. */
    for (uint32_t e = 0; e < 4; e++) {
        const uint32_t row = g + e / 2 * 8;
        const uint32_t column = 2 * q + e % 2;
        double sum = (double)d[e];
        for (uint32_t k = 0; k < 16; k++) {
            const uint32_t from = k % 8 / 2;
            const uint32_t a = room.words[4 * (row % 8) + from][row / 8 + k / 8 * 2];
            const uint32_t b = room.words[4 * column + from][4 + k / 8];
            sum +=
                (double)f32_of(a >> 16 * (k % 2) << 16) * (double)f32_of(b >> 16 * (k % 2) << 16);
        }
        d[e] = (float)sum;
    }
}

uint64_t ptx_clock() {
    static uint64_t now;
    return now += 1000;
}

/* ---- launches ---- */

static const void *find(const char *name) {
    for (const ptx_chunk *const *c = ptx_chunks; *c != nullptr; c++) {
        for (int i = 0; i < (*c)->kernels_count; i++) {
            if (strcmp((*c)->kernels[i].name, name) == 0) {
                return &(*c)->kernels[i];
            }
        }
    }
    if (ptx_is_complete) {
        static const ptx_kernel unknown = {"", nullptr, nullptr, 0, nullptr, 0};
        current = &unknown;
        ptx_stop((std::string("no kernel of the name ") + name).c_str());
    }
    return nullptr;
}

static void parameter(const void *kernel,
                      unsigned char *room,
                      int index,
                      const void *value,
                      size_t size_bytes) {
    current = (const ptx_kernel *)kernel;
    if (index >= current->parameters_count || current->parameters[index].end != size_bytes ||
        current->parameters[index].begin + size_bytes > EXECUTOR_PARAMETER_BYTES) {
        ptx_stop("its parameters differ from those of the host's code");
    }
    memcpy(room + current->parameters[index].begin, value, size_bytes);
}

static void begin(const void *kernel, int parameters_count, unsigned operands) {
    current = (const ptx_kernel *)kernel;
    if (parameters_count != current->parameters_count) {
        ptx_stop("its parameters differ from those of the host's code");
    }
    launch_serial++;
    operator_launch = operands != operands_now ? launch_serial : operator_launch;
    own_lines = &(*lines)[current->name];
    own_lines->resize(MAX_LINES);
    (*launches)[{current->name, (*operand_sets)[operands].op}]++;
    windows_count = 0;
    operands_now = operands;
}

static void thread(const void *kernel, const unsigned char *room) {
    const ptx_kernel *k = (const ptx_kernel *)kernel;
    const struct emulation_size *t = ptx_host->thread;
    const struct emulation_size *n = ptx_host->threads;
    epochs[t->x + n->x * (t->y + n->y * t->z)] = 0;
    barriers[t->x + n->x * (t->y + n->y * t->z)] = 0;
    resume();
    note_block();
    k->run(room);
    if (!copies[own_thread].waiting.empty()) {
        resume();
        copies[own_thread].waiting.clear(); /* that they complete after its end is allowed */
    }
}

extern "C" const struct executor *ptx_executor(const struct executor_host *host);

extern "C" const struct executor *ptx_executor(const struct executor_host *host) {
    static const struct executor table = {find,      appears, disappears, note_operands,
                                          parameter, begin,   thread};
    ptx_host = host;
    launches = new std::map<std::pair<std::string, std::string>, uint64_t>;
    faults = new std::map<std::string, fault>;
    lines = new std::map<std::string, std::vector<bool>>;
    regions = new std::map<uint64_t, region>;
    operand_sets = new std::vector<operand_set>(1, no_operands);
    copies = new std::remove_reference_t<decltype(*copies)>[MAX_THREADS];
    for (const ptx_chunk *const *c = ptx_chunks; *c != nullptr; c++) {
        for (const ptx_table *t = (*c)->tables; t->size_bytes > 0; t++) {
            appears((const void *)t->data, t->size_bytes);
            (*regions)[t->data].is_constant = true;
        }
    }
    (void)atexit(report);
    return &table;
}

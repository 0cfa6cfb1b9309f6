// The three programs that let connections rest outside of the kernel.
//
//   steer  (sk_lookup of a network namespace): runs for each packet that finds no established socket. If its addresses are in
//          the table, it goes to a sink, a listener that accepts nothing, whatever its port.
//   sink   (socket filter of the sinks): checks the packet's sequence number, copies the packet to the ring, drops it.
//   mute   (socket filter of a socket that is half taken or half made): copies the packet to the ring, drops it.
//
// Nothing is attached to a listener of the gateway, and established connections never run any of this.
// `compile` translates this file to instructions.rs, which is committed.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/tcp.h>

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define SWAP16 __builtin_bswap16
#define SWAP32 __builtin_bswap32

// A symbol stands for what the loader puts in its place: a map, or a number.
extern char TABLE, RING, SINKS, COUNTERS, KEY_0, KEY_1, BUCKETS;
#define NUMBER(symbol) ((__u64)&(symbol))

static void *(*lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*assign)(void *context, void *socket, __u64 flags) = (void *)BPF_FUNC_sk_assign;
static long (*release)(void *socket) = (void *)BPF_FUNC_sk_release;
static long (*load)(const void *packet, __u32 offset, void *to, __u32 len) = (void *)BPF_FUNC_skb_load_bytes;
static long (*load_from)(const void *packet, __u32 offset, void *to, __u32 len, __u32 start) =
    (void *)BPF_FUNC_skb_load_bytes_relative;
static void *(*reserve)(void *ring, __u64 size, __u64 flags) = (void *)BPF_FUNC_ringbuf_reserve;
static void (*submit)(void *data, __u64 flags) = (void *)BPF_FUNC_ringbuf_submit;
static __u64 (*now_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;

// As in table.rs.
struct entry {
    __u64 digest; // 0: free
    __u32 receive_next;
    __u32 record;
};
struct bucket {
    struct entry entries[4];
};

// As in ring.rs.
struct packet {
    __u64 digest;
    __u32 len; // of the packet, of which at most SHORT, LONG or HUGE bytes follow
    __u16 family;
    __u16 ports[2];     // of the sender, of the receiver
    __u8 addresses[32]; // of the sender, then of the receiver
    __u16 unused[3];
    __u8 bytes[]; // from the TCP header on
};
#define SHORT 200
#define LONG 1992  // more than an Ethernet frame
#define HUGE 65512 // what fits into an IPv4 packet: loopback, jumbo frames, and packets that the kernel has merged
_Static_assert(sizeof(struct packet) == 56, "a multiple of eight");

// A packet this far before or after the next byte is worth a look. A peer's first flight after a pause is shorter.
#define WINDOW 65536

enum { STEERED, OUTSIDE, RING_FULL, LIMITED, CELLS };

// One connection may cause some 1,000 events in a second, many more than a flight of data before its wake: all share
// one ring and the process that reads it. The cells follow the counters; each has a tick and the events in it.
#define CELLS_COUNT 65536
#define EVENTS_PER_TICK 64
#define TICK_SHIFT 26 // 67 ms

INLINE void count(__u32 which) {
    __u64 *counter = lookup(&COUNTERS, &which);
    if (counter)
        __sync_fetch_and_add(counter, 1);
}

INLINE int may_pass(__u64 digest) {
    __u32 which = CELLS + (digest >> 8) % CELLS_COUNT;
    __u64 tick = now_ns() >> TICK_SHIFT, *cell = lookup(&COUNTERS, &which);
    if (!cell)
        return 0;
    if (*cell >> 16 != tick)
        *cell = tick << 16;
    if ((*cell & 0xffff) >= EVENTS_PER_TICK)
        return 0;
    __sync_fetch_and_add(cell, 1);
    return 1;
}

// The keyed digest of table.rs.
INLINE __u64 mix(__u64 hash, __u64 word) {
    hash = (hash ^ word) * 0xff51afd7ed558ccd;
    hash = (hash ^ hash >> 32) * 0xc4ceb9fe1a85ec53;
    return hash ^ hash >> 29;
}

INLINE __u64 finish(__u64 hash, __u32 ports) {
    hash = mix(hash, NUMBER(KEY_1) ^ ports);
    return hash ? hash : 1;
}

INLINE struct entry *find_in(__u32 number, __u64 digest) {
    struct bucket *bucket = lookup(&TABLE, &number);
    if (!bucket)
        return 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (bucket->entries[i].digest == digest)
            return &bucket->entries[i];
    return 0;
}

INLINE struct entry *find(__u64 digest) {
    struct entry *entry = find_in((digest & 0xffffffff) * NUMBER(BUCKETS) >> 32, digest);
    return entry ? entry : find_in((digest >> 32) * NUMBER(BUCKETS) >> 32, digest);
}

SECTION("program/steer") int steer(struct bpf_sk_lookup *c) {
    if (c->protocol != IPPROTO_TCP)
        return SK_PASS;
    __u64 hash = NUMBER(KEY_0);
    __u32 which = 0;
    if (c->family == 2) {
        hash = mix(hash, c->remote_ip4 | (__u64)c->local_ip4 << 32);
    } else {
        which = 1;
        hash = mix(hash, c->remote_ip6[0] | (__u64)c->remote_ip6[1] << 32);
        hash = mix(hash, c->remote_ip6[2] | (__u64)c->remote_ip6[3] << 32);
        hash = mix(hash, c->local_ip6[0] | (__u64)c->local_ip6[1] << 32);
        hash = mix(hash, c->local_ip6[2] | (__u64)c->local_ip6[3] << 32);
    }
    // The local port is in the host's byte order, unlike all others.
    __u32 local = SWAP16((__u16)c->local_port);
    if (!find(finish(hash, (__u16)c->remote_port | local << 16)))
        return SK_PASS;
    void *socket = lookup(&SINKS, &which);
    if (!socket)
        return SK_PASS;
    count(STEERED);
    assign(c, socket, BPF_SK_LOOKUP_F_REPLACE);
    release(socket);
    return SK_PASS;
}

struct origin {
    __u8 addresses[32];
    __u32 ports;
    __u16 family;
};

INLINE __u64 digest_of(struct __sk_buff *packet, struct origin *origin) {
    __u64 hash = NUMBER(KEY_0), *words = (__u64 *)origin->addresses;
    if (packet->protocol == SWAP16(ETH_P_IP)) {
        origin->family = 4;
        if (load_from(packet, 12, origin->addresses, 8, BPF_HDR_START_NET))
            return 0;
        hash = mix(hash, words[0]);
    } else {
        origin->family = 6;
        if (load_from(packet, 8, origin->addresses, 32, BPF_HDR_START_NET))
            return 0;
        hash = mix(mix(mix(mix(hash, words[0]), words[1]), words[2]), words[3]);
    }
    if (load(packet, 0, &origin->ports, 4))
        return 0;
    return finish(hash, origin->ports);
}

INLINE void describe(struct packet *copy, __u64 digest, const struct origin *origin, __u32 len) {
    copy->digest = digest;
    copy->len = len;
    copy->family = origin->family;
    __builtin_memcpy(copy->ports, &origin->ports, 4);
    __builtin_memcpy(copy->addresses, origin->addresses, 32);
}

// A ring reserves room of a constant size only.
INLINE void copy_up_to(__u32 max, struct __sk_buff *packet, __u64 digest, const struct origin *origin) {
    __u32 len = packet->len;
    struct packet *copy = reserve(&RING, sizeof(*copy) + max, 0);
    if (!copy) {
        count(RING_FULL);
        return;
    }
    describe(copy, digest, origin, len);
    if (len < sizeof(struct tcphdr) || load(packet, 0, copy->bytes, len > max ? max : len))
        copy->len = 0;
    submit(copy, 0);
}

INLINE void copy(struct __sk_buff *packet, __u64 digest, const struct origin *origin) {
    if (packet->len <= SHORT)
        copy_up_to(SHORT, packet, digest, origin);
    else if (packet->len <= LONG)
        copy_up_to(LONG, packet, digest, origin);
    else
        copy_up_to(HUGE, packet, digest, origin);
}

SECTION("program/sink") int sink(struct __sk_buff *packet) {
    struct origin origin __attribute__((aligned(8))) = {};
    __u64 digest = digest_of(packet, &origin);
    struct entry *entry = digest ? find(digest) : 0;
    struct tcphdr header;
    if (!entry || load(packet, 0, &header, sizeof(header)))
        return 0;
    // A SYN comes from a peer that has forgotten the connection, and is answered whatever its number.
    __u32 ahead = SWAP32(header.seq) - entry->receive_next;
    __u32 behind_max = WINDOW + packet->len;
    int is_anew = header.syn && !header.ack;
    if (!is_anew && ahead >= WINDOW && -ahead > behind_max) {
        count(OUTSIDE);
        return 0;
    }
    // A reset is not repeated.
    int is_end = header.rst && !ahead;
    if (!is_end && !may_pass(digest)) {
        count(LIMITED);
        return 0;
    }
    copy(packet, digest, &origin);
    return 0;
}

SECTION("program/mute") int mute(struct __sk_buff *packet) {
    struct origin origin __attribute__((aligned(8))) = {};
    __u64 digest = digest_of(packet, &origin);
    if (digest)
        copy(packet, digest, &origin);
    return 0;
}

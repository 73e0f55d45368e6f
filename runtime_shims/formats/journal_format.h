// The journal's binary format: what the runtime appends while a model runs and tools decode afterwards.
//
// journal.bin = JournalHeader, then blocks of `block_bytes`. A block belongs to one thread; it is a BlockHeader and
// then records, 8-byte aligned, each a RecordHeader and a payload. Fields are little-endian and fixed-width.
//
// A record is complete when its `size` is not 0: the size is stored last. A reader stops in a block at the first record
// of size 0. So a process may die at any instruction and every record before that instruction is readable.
//
// The file is mapped and its blocks are allocated (posix_fallocate) before they are written: a full disk stops the
// recording, it never raises SIGBUS. At level 3 blocks are reused, oldest first, once the file reaches its limit: the
// newest launches matter. Layouts are numbered per block for that reason, so every block can be read alone.
//
// Order between threads is by RecordHeader::time_ns.
#pragma once

#include <stdint.h>

#define AOTI_DEBUG_JOURNAL_MAGIC "AOTIDBJ1"  // 8 bytes, no terminator in the file
#define AOTI_DEBUG_JOURNAL_VERSION 1u
#define AOTI_DEBUG_BLOCK_BYTES 65536u
#define AOTI_DEBUG_BLOCK_MAGIC 0x4b4c4231u  // "1BLK"
#define AOTI_DEBUG_MAX_DIMS 64

typedef enum Level {
  LEVEL_OFF = 0,
  LEVEL_SAVE = 1,
  LEVEL_VALUES = 2,
  LEVEL_NAMES = 3,
  LEVEL_HASH = 4,  // "hash": the hash of every tensor, and nothing else
} Level;

typedef struct JournalHeader {
  char magic[8];
  uint32_t version;
  uint32_t block_bytes;
  uint32_t pid;
  uint32_t level;          // the Level in force
  uint64_t start_unix_ns;  // wall clock when RecordHeader::time_ns was 0
  uint64_t blocks_reused;  // > 0: older launches were overwritten
  uint64_t crumb_every;    // a crumb at least every this many launches outside of CUDA graphs; 0: no crumbs (CPU)
  uint64_t lost_records;   // that were not written after the recording had stopped: they tell that the model goes on
  uint64_t open_calls;     // calls that have begun and not ended, recorded or not
} JournalHeader;           // 64 bytes

typedef struct BlockHeader {
  uint32_t magic;
  uint32_t thread;    // operating system's thread id
  uint64_t sequence;  // counts blocks in the order they were taken, from 0
} BlockHeader;        // 16 bytes

typedef enum RecordType {
  RECORD_CALL_BEGIN = 1,     // CallBegin
  RECORD_CALL_END = 2,       // CallEnd
  RECORD_LAYOUT = 3,         // Layout, then int64_t sizes[ndim], int64_t strides[ndim]
  RECORD_LAUNCH_BEGIN = 4,   // LaunchBegin, then SlotValue[n_values]: every slot (an OUTPUT_SLOT has tag VALUE_UNSET)
  RECORD_GRID = 5,           // Grid, then uint64_t arguments[n_arguments]
  RECORD_LAUNCH_END = 6,     // LaunchEnd, then SlotValue[n_values]: what the call makes, in slot order
  RECORD_TENSOR_FILE = 7,    // TensorFile, then char path[path_bytes] (relative to the run), char reason[reason_bytes]
  RECORD_TENSOR_STATS = 8,   // TensorStats, then the elements' bytes (row-major), value_bytes of them
  RECORD_FAULT = 9,          // Fault, then char text[text_bytes]
  RECORD_NOTE = 10,          // Note, then char text[text_bytes]
  RECORD_RUN_END = 11,       // no payload: the package was unloaded in order
  RECORD_GUARD = 12,         // GuardDamage
  RECORD_WATCH = 16,         // Watch, then char text[text_bytes]
  RECORD_WATCH_HIT = 17,     // WatchHit
  RECORD_WATCH_COUNT = 18,   // WatchCount; the last one of a watchpoint counts
  RECORD_PRINT = 19,         // Print, then char text[text_bytes]
  RECORD_REPLAY_STATS = 20,  // ReplayStats, then what a TENSOR_STATS has
  RECORD_CLOCK = 21,         // WallClock: as a call begins and as it ends, where there is a device
} RecordType;

typedef struct RecordHeader {
  uint32_t size;  // header and payload, a multiple of 8; stored last
  uint16_t type;  // RecordType
  uint16_t flags;
  uint64_t time_ns;  // monotonic, from the journal's start
} RecordHeader;      // 16 bytes

typedef enum CallFlag { CALL_CAPTURING = 1 } CallFlag;         // in RecordHeader::flags of CALL_BEGIN
typedef enum RunEndFlag { RUN_END_CUT_SHORT = 1 } RunEndFlag;  // of RUN_END: recording had stopped before

typedef struct CallBegin {
  uint32_t call;  // numbered per kind from 0
  uint8_t kind;   // AotiDebugCallKind
  uint8_t level;  // what is recorded in this call: lower than asked for under graph capture
  uint16_t stream_slot;
  uint64_t model;  // address of the AOTInductorModel: tells concurrent runners apart
  uint64_t stream;
} CallBegin;  // 24 bytes

typedef struct CallEnd {
  uint32_t call;
  uint8_t kind;
  uint8_t failed;
  uint16_t reserved;
  uint32_t launches;
  uint32_t reserved2;
} CallEnd;  // 16 bytes

// The wall clock at RecordHeader::time_ns, which is measured by a counter whose rate is known to 5 digits only.
typedef struct WallClock {
  uint64_t unix_ns;
} WallClock;  // 8 bytes

typedef struct Layout {
  uint32_t id;          // per block, from 0
  int32_t dtype;        // c10::ScalarType
  int16_t device_type;  // c10::DeviceType
  int16_t device_index;
  int16_t layout;  // c10::Layout; sizes and strides are empty where it is not strided
  uint16_t ndim;
  int64_t storage_offset;  // elements
  int64_t storage_bytes;
} Layout;  // 32 bytes, then sizes and strides

typedef enum ValueTag {
  VALUE_UNSET = 0,   // an output slot before its launch
  VALUE_NULL = 1,    // None
  VALUE_TENSOR = 2,  // bits: data pointer; layout: Layout::id of this block
  VALUE_NUMBER = 3,  // bits and type as in AotiDebugValue
  VALUE_TEXT = 4,    // the literal is in the manifest
  VALUE_OPAQUE = 5,
  VALUE_UNDEFINED = 6,  // a handle to an undefined tensor
} ValueTag;

typedef struct SlotValue {
  uint8_t tag;    // ValueTag
  uint8_t type;   // AotiDebugType of a VALUE_NUMBER
  uint16_t slot;  // index in AotiDebugSite::slots
  uint32_t layout;
  uint64_t bits;
} SlotValue;  // 16 bytes

typedef struct LaunchBegin {
  uint32_t call;
  uint8_t kind;  // AotiDebugCallKind
  uint8_t n_loops;
  uint16_t stream_slot;
  uint32_t launch;  // within the call, from 0
  uint32_t site;
  uint32_t sequence;  // run-wide, from 1: the number that the breadcrumb stores
  uint32_t n_values;
  uint32_t loops[4];  // iteration of each enclosing while loop, outermost first
} LaunchBegin;        // 40 bytes

typedef struct Grid {
  uint32_t call;
  uint32_t launch;
  uint32_t kernel;  // AotiDebugKernel::id
  uint8_t kind;
  uint8_t reserved[3];
  uint32_t grid[3];
  uint32_t num_warps;
  uint32_t shared_bytes;
  uint32_t n_arguments;
} Grid;  // 40 bytes

typedef enum LaunchFlag {
  LAUNCH_NOT_STARTED = 1,  // an empty grid
  LAUNCH_CRUMB = 2,        // a breadcrumb follows; the last launch of a call has one in any case
} LaunchFlag;              // in RecordHeader::flags of LAUNCH_END

typedef struct LaunchEnd {
  uint32_t call;
  uint32_t launch;
  int32_t status;
  uint8_t kind;
  uint8_t reserved;
  uint16_t n_values;
} LaunchEnd;  // 16 bytes

typedef enum Phase { PHASE_BEFORE = 0, PHASE_AFTER = 1 } Phase;

typedef enum SaveStatus {
  SAVE_WRITTEN = 0,
  SAVE_LINKED = 1,    // a hard link to an earlier file of equal bytes, name and layout
  SAVE_SKIPPED = 2,   // `reason` says why
  SAVE_REFERRED = 3,  // a reference to equal bytes in the file of the weights
} SaveStatus;

typedef struct TensorFile {
  uint32_t call;
  uint32_t launch;
  uint16_t slot;
  uint8_t kind;
  uint8_t phase;   // Phase
  uint8_t status;  // SaveStatus
  uint8_t reserved[3];
  uint64_t bytes;    // of the logical tensor
  uint64_t hash[2];  // of its bytes, row-major
  uint32_t path_bytes;
  uint32_t reason_bytes;
} TensorFile;  // 48 bytes

typedef enum StatsFlag {
  STATS_UNINITIALISED = 1,  // an output before its launch: nothing was read
  STATS_SKIPPED = 2,        // `value_bytes` of text say why
  STATS_HASH_ONLY = 4,      // only `numel` and `hash` were computed; the other statistics are 0
} StatsFlag;                // in RecordHeader::flags of TENSOR_STATS

// Statistics of one tensor. A complex tensor counts each element once (its magnitude gives min, max, mean and std).
// min and max of the finite elements; `*_bits` is a double's pattern, or the integer itself where `integer` is 1
// (int64) or 2 (uint64). mean and std (population) are over the finite elements, in double; NaN where there is none.
typedef struct TensorStats {
  uint32_t call;
  uint32_t launch;
  uint16_t slot;
  uint8_t kind;
  uint8_t phase;
  uint8_t integer;
  uint8_t reserved[3];
  uint64_t numel;
  uint64_t n_nan;
  uint64_t n_pos_inf;
  uint64_t n_neg_inf;
  uint64_t n_zero;
  uint64_t min_bits;
  uint64_t max_bits;
  uint64_t min_index;  // row-major index of its first occurrence
  uint64_t max_index;
  double mean;
  double std;
  uint64_t hash;  // of the bytes, row-major
  uint32_t value_bytes;
  uint32_t layout;  // Layout::id of this block
} TensorStats;      // 120 bytes

// The statistics of a tensor of a call that a CUDA graph has captured, as its last replay left them.
typedef struct ReplayStats {
  uint32_t replay;  // that has measured them, from 1
  uint32_t begun;   // replays that had begun by the time of the record
} ReplayStats;      // 8 bytes, then a TensorStats; RecordHeader::flags are those of TENSOR_STATS

typedef enum FaultDomain {
  FAULT_EXCEPTION = 1,  // a C++ exception left the callee; code is -1
  FAULT_SHIM = 2,       // the callee returned an AOTITorchError
  FAULT_CUDA = 3,       // code is a CUresult of the driver
} FaultDomain;

typedef struct Fault {
  uint32_t call;
  uint32_t launch;
  uint8_t kind;
  uint8_t in_launch;  // 0: noticed at the end of a call, outside any launch
  uint16_t domain;    // FaultDomain
  int32_t code;
  uint32_t text_bytes;
  uint32_t reserved;
} Fault;  // 24 bytes

// A launch wrote into a zone around a buffer that the wrapper allocates (AOTI_DEBUG_GUARDS=1). Offsets count bytes from
// the buffer's first: they are below 0 in front of it, and from `bytes` on behind it.
typedef struct GuardDamage {
  uint32_t call;
  uint32_t launch;
  uint32_t allocation;  // index in the manifest's allocations
  uint8_t kind;
  uint8_t reserved[3];
  uint64_t data;      // address of the buffer's first byte
  uint64_t bytes;     // of the buffer
  int64_t first;      // offset of the first byte that is not what it was
  int64_t last;       // and of the last one
  uint64_t damaged;   // how many there are
  uint8_t found[16];  // what is there now, from `first` on; 0 behind the zone's end
} GuardDamage;        // 72 bytes

// What a print operator of the model printed, without the newline; at most 16 KiB of it.
typedef struct Print {
  uint32_t call;
  uint32_t launch;
  uint32_t text_bytes;
  uint8_t kind;  // AotiDebugCallKind
  uint8_t reserved[3];
} Print;  // 16 bytes

// A watchpoint of the run, as it was written.
typedef struct Watch {
  uint32_t watch;  // its number, from 0
  uint32_t text_bytes;
} Watch;  // 8 bytes

// A statistic that a watchpoint compares. From WATCH_NAN on they count elements.
typedef enum WatchStatistic {
  WATCH_NUMBER = 0,  // none: a number
  WATCH_MIN = 1,
  WATCH_MAX = 2,
  WATCH_ABSMAX = 3,
  WATCH_MEAN = 4,
  WATCH_STD = 5,
  WATCH_NAN = 6,
  WATCH_INF = 7,
  WATCH_POSINF = 8,
  WATCH_NEGINF = 9,
  WATCH_NONFINITE = 10,
  WATCH_ZEROS = 11,
  WATCH_NUMEL = 12,
} WatchStatistic;

typedef enum WatchAction {
  WATCH_SAVE = 1,   // save the tensors of the launch
  WATCH_STACK = 2,  // write down the native stack, once
  WATCH_STOP = 4,   // end the call with an exception
  WATCH_TALLY = 8,  // count only
} WatchAction;      // in RecordHeader::flags of WATCH_HIT: what was done

// A condition held.
typedef struct WatchHit {
  uint32_t call;
  uint32_t launch;
  uint32_t site;
  uint32_t watch;
  uint32_t thread;
  uint16_t slot;
  uint8_t kind;
  uint8_t phase;       // Phase
  uint32_t statistic;  // WatchStatistic of the comparison that held
  uint32_t replay;     // of the CUDA graph that captured the call, from 1; 0: the call was not captured
  int64_t element;     // row-major index of an element that made it hold; -1: none can be named
  double value;        // of that element, otherwise of the statistic
  uint64_t number;     // of the watchpoint's hits, from 1
} WatchHit;            // 56 bytes

typedef struct WatchCount {
  uint32_t watch;
  uint32_t unread;  // how often the device could not read what the condition asks for
  uint64_t hits;
  uint64_t evaluated;  // how often the condition was looked at
} WatchCount;          // 24 bytes

typedef enum NoteCode {
  NOTE_RECORDING_STOPPED = 1,  // a limit, a full disk, a directory that cannot be written
  NOTE_CAPTURING = 2,          // what is not recorded of calls that a CUDA graph captures
  NOTE_CONFIGURATION = 3,      // an environment variable that was not understood
  NOTE_CRUMBS_OFF = 4,         // breadcrumbs could not be set up
  NOTE_FLIGHT_OFF = 5,         // the flight recorder could not be set up
  NOTE_GUARDS = 6,             // a buffer without guards, or damage that is no longer recorded
  NOTE_WEIGHTS = 7,            // the host has changed, swapped, folded or freed the model's weights
  NOTE_SUBSTITUTED = 8,        // at the end: how much was replaced and skipped
  NOTE_NOT_SUBSTITUTED = 9,    // a launch that could not be skipped, a result that could not be replaced
  NOTE_STOPPED = 10,           // the run has stopped before a launch, as it was told to
  NOTE_WATCH_UNREAD = 11,      // the first tensor that a watchpoint did not see
  NOTE_GPU_CORE = 12,          // the driver writes core dumps of the GPU: breadcrumbs go on behind a kernel that fails
} NoteCode;

typedef struct Note {
  uint32_t code;  // NoteCode
  uint32_t text_bytes;
} Note;  // 8 bytes

// crumbs.bin: shared memory that outlives the process (a file in /dev/shm; crumbs.bin in the run directory is a link to
// it, replaced by a copy once the process has ended).
typedef struct CrumbHeader {
  char magic[8];  // "AOTIDBC1"
  uint32_t version;
  uint32_t n_slots;
  uint64_t every;  // a crumb at least every this many launches
  uint64_t reserved[5];
} CrumbHeader;  // 64 bytes, then CrumbSlot[n_slots]

typedef struct CrumbSlot {
  uint32_t completed;  // LaunchBegin::sequence of the last launch that is known to have completed in this slot
  uint32_t used;       // 1 once a stream has it, or a call that a CUDA graph captures
  uint64_t stream;
  uint32_t replays;  // of a captured call, that have begun; 0 where they are not counted
  uint32_t reserved0;
  uint64_t reserved[5];
} CrumbSlot;  // 64 bytes

#ifdef __cplusplus
static_assert(sizeof(JournalHeader) == 64, "");
static_assert(sizeof(BlockHeader) == 16, "");
static_assert(sizeof(RecordHeader) == 16, "");
static_assert(sizeof(CallBegin) == 24, "");
static_assert(sizeof(CallEnd) == 16, "");
static_assert(sizeof(WallClock) == 8, "");
static_assert(sizeof(Layout) == 32, "");
static_assert(sizeof(SlotValue) == 16, "");
static_assert(sizeof(LaunchBegin) == 40, "");
static_assert(sizeof(Grid) == 40, "");
static_assert(sizeof(LaunchEnd) == 16, "");
static_assert(sizeof(TensorFile) == 48, "");
static_assert(sizeof(TensorStats) == 120, "");
static_assert(sizeof(ReplayStats) == 8, "");
static_assert(sizeof(Fault) == 24, "");
static_assert(sizeof(GuardDamage) == 72, "");
static_assert(sizeof(Print) == 16, "");
static_assert(sizeof(Watch) == 8, "");
static_assert(sizeof(WatchHit) == 56, "");
static_assert(sizeof(WatchCount) == 24, "");
static_assert(sizeof(Note) == 8, "");
static_assert(sizeof(CrumbHeader) == 64, "");
static_assert(sizeof(CrumbSlot) == 64, "");
#endif

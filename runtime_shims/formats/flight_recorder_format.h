// flight.bin: the inputs of the last launches, as they were before each launch, in shared memory that outlives the
// process (a file in /dev/shm; flight.bin in the run directory is a link to it while the process lives).
//
// flight.bin = FlightHeader, FlightLaunch[n_launches], FlightTensor[n_tensors], `weights_bytes` bytes of text, and from
// `data` on `data_bytes` bytes, of which [data, data + host_bytes) are written by the host and the rest by the device,
// in the order of its streams.
//
// The text tells which file the weights lie in, if that is known: its path, its size and the SHA-256 of its directory,
// with tabs between them.
//
// A launch of generation g is entry g % n_launches. Its tensors are `n_tensors` entries from `first` on, modulo
// FlightHeader::n_tensors; they belong to it if their generation is g. It is whole if `arrived` is g too, and no later
// launch that has begun to write overwrites its bytes. A launch with host bytes has begun once its entry is there. One
// with device bytes has begun if it has arrived; the first one on its stream that has not arrived may have begun.
#pragma once

#include <stdint.h>

#define AOTI_DEBUG_FLIGHT_MAGIC "AOTIDBF1"  // 8 bytes, no terminator in the file
#define AOTI_DEBUG_FLIGHT_VERSION 2u

typedef struct FlightHeader {
  char magic[8];  // stored last
  uint32_t version;
  uint32_t pid;
  uint32_t keep;  // AOTI_DEBUG_FLIGHT
  uint32_t n_launches;
  uint32_t n_tensors;
  uint32_t weights_bytes;
  uint64_t data;  // bytes from the beginning of the file
  uint64_t data_bytes;
  uint64_t host_bytes;
  uint64_t reserved2;
} FlightHeader;  // 64 bytes

typedef struct FlightLaunch {
  uint64_t generation;  // counts launches from 1; 0: none, or it is being written
  uint32_t arrived;     // the generation's low half, stored by the stream (or the host) behind the bytes
  uint32_t thread;      // 0 where the stream alone orders the work
  uint32_t call;
  uint32_t launch;
  uint8_t kind;  // AotiDebugCallKind
  uint8_t reserved[7];
  uint64_t stream;
  uint64_t model;
  uint64_t host_begin;  // bytes from `data`
  uint64_t host_end;
  uint64_t device_begin;
  uint64_t device_end;
  uint32_t first;
  uint32_t n_tensors;
  uint32_t n_left_out;  // tensors that there was no entry for
  uint32_t reserved2;
} FlightLaunch;  // 96 bytes

typedef enum FlightStatus {
  FLIGHT_KEPT = 0,
  FLIGHT_TOO_LARGE = 1,   // larger than what is left of AOTI_DEBUG_FLIGHT_BYTES
  FLIGHT_UNREADABLE = 2,  // sparse, quantized, no memory, beyond its storage
  FLIGHT_NOT_COPIED = 3,  // the device refused the copy
  FLIGHT_BUSY = 4,        // its room belongs to launches of other streams that the device has not reached
  FLIGHT_FULL = 5,        // /dev/shm has no more room
  FLIGHT_REFERRED = 6,    // a weight with the bytes that its file has at `place`: not copied
} FlightStatus;

// The bytes of a tensor from its first to its last element, with what lies between them.
typedef struct FlightTensor {
  uint32_t generation;  // low half
  uint16_t slot;        // index in AotiDebugSite::slots
  uint8_t status;       // FlightStatus
  uint8_t reserved;
  uint64_t address;  // of the first element
  uint64_t begin;    // bytes from `data`
  uint64_t bytes;
  uint64_t place;    // of a weight: the byte of its file at which element 0 may lie; 0 where there is none
  uint64_t hash[2];  // of a weight that is referred to: TensorFile::hash
} FlightTensor;      // 56 bytes

#ifdef __cplusplus
static_assert(sizeof(FlightHeader) == 64, "");
static_assert(sizeof(FlightLaunch) == 96, "");
static_assert(sizeof(FlightTensor) == 56, "");
#endif

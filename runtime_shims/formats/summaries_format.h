// summaries.bin: statistics of the tensors that launches write, of some calls of the model and of some replays of the
// CUDA graphs that have captured calls.
//
// summaries.bin = SummariesHeader, SummaryRow[n_rows]. A call, or a replay, is summarised if its number is a multiple
// of `every`. Once there are `most_rows`, `every` doubles and the rows of those in between are dropped. A row may occur
// twice in the file of a process that was killed meanwhile.
#pragma once

#include <stdint.h>

#define AOTI_DEBUG_SUMMARIES_MAGIC "AOTIDBU1"  // 8 bytes, no terminator in the file
#define AOTI_DEBUG_SUMMARIES_VERSION 2u

typedef struct SummariesHeader {
  char magic[8];
  uint32_t version;
  uint32_t asked;      // AOTI_DEBUG_SUMMARIES
  uint64_t every;      // calls or replays, a multiple of `asked`
  uint64_t n_rows;     // that are written
  uint64_t most_rows;  // AOTI_DEBUG_SUMMARIES_BYTES
  uint64_t n_lost;     // rows of one call that there was no room for
  uint64_t n_missed;   // rows of replays that later ones have written over before they were read
  uint64_t reserved;
} SummariesHeader;  // 64 bytes

typedef struct SummaryRow {
  uint32_t call;    // of a replay: the one that its graph has captured
  uint32_t replay;  // from 1; 0: the row is of a call
  uint32_t launch;
  uint32_t site;
  uint16_t slot;  // index in AotiDebugSite::slots
  int16_t dtype;  // c10::ScalarType
  uint32_t reserved;
  uint64_t numel;
  uint64_t n_nan;
  uint64_t n_pos_inf;
  uint64_t n_neg_inf;
  uint64_t n_zero;
  double min;  // over the finite elements; NaN: there is none
  double max;
  double mean;
  double std;
} SummaryRow;  // 96 bytes

#ifdef __cplusplus
static_assert(sizeof(SummariesHeader) == 64, "");
static_assert(sizeof(SummaryRow) == 96, "");
#endif

// summaries.bin: statistics of the tensors that launches write, of some calls of the model.
//
// summaries.bin = SummariesHeader, SummaryRow[n_rows]. A call is summarised if its number is a multiple of `every`.
// Once there are `most_rows`, `every` doubles and the rows of the calls in between are dropped. A row may occur twice
// in the file of a process that was killed meanwhile.
#pragma once

#include <stdint.h>

#define AOTI_DEBUG_SUMMARIES_MAGIC "AOTIDBU1"  // 8 bytes, no terminator in the file
#define AOTI_DEBUG_SUMMARIES_VERSION 1u

typedef struct SummariesHeader {
  char magic[8];
  uint32_t version;
  uint32_t asked;      // AOTI_DEBUG_SUMMARIES
  uint64_t every;      // calls, a multiple of `asked`
  uint64_t n_rows;     // that are written
  uint64_t most_rows;  // AOTI_DEBUG_SUMMARIES_BYTES
  uint64_t n_lost;     // rows of one call that there was no room for
  uint64_t reserved[2];
} SummariesHeader;  // 64 bytes

typedef struct SummaryRow {
  uint32_t call;
  uint32_t launch;
  uint32_t site;
  uint16_t slot;  // index in AotiDebugSite::slots
  int16_t dtype;  // c10::ScalarType
  uint64_t numel;
  uint64_t n_nan;
  uint64_t n_pos_inf;
  uint64_t n_neg_inf;
  uint64_t n_zero;
  double min;  // over the finite elements; NaN: there is none
  double max;
  double mean;
  double std;
} SummaryRow;  // 88 bytes

#ifdef __cplusplus
static_assert(sizeof(SummariesHeader) == 64, "");
static_assert(sizeof(SummaryRow) == 88, "");
#endif

// An order of a strided tensor's chunks.
#pragma once

#include "element_types.h"

namespace aoti_debug::cuda {

// The order in which threads take the chunks of a tensor whose rows lie across the memory (a transposed matrix): those
// of neighbouring rows one after the other, because they are neighbours in memory.
struct Interleaving {
  uint32_t rows;        // 0: in the order of their numbers
  uint32_t row_chunks;  // chunks between a row and the next one
};

AOTI_DEBUG_FN uint64_t chunk_number(const Interleaving& order, uint64_t nth) {
  if (order.rows == 0) return nth;
  const uint32_t narrow = static_cast<uint32_t>(nth), column = narrow / order.rows, row = narrow % order.rows;
  return (uint64_t{column / order.row_chunks} * order.rows + row) * order.row_chunks + column % order.row_chunks;
}

// Whether chunks `first`, `first + step`, … have rising numbers, whatever `first` is: they are of one row.
AOTI_DEBUG_FN bool rises(const Interleaving& order, uint64_t step) { return order.rows == 0 || step % order.rows == 0; }

}  // namespace aoti_debug::cuda

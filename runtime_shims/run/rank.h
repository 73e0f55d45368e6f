// A rank of a distributed program, and the directory that the ranks of one launch have in common.
//
// BASE/
//   20261120-231501-4711/        made by the first rank that comes
//     ranks.json                 how many ranks there are, and of which launch
//     rank0/ rank1/ …            a run directory each; .owner in it names its process
//     .node-HOST                 the process that started the ranks there
//   .ranks-0123456789abcdef -> 20261120-231501-4711
//
// Ranks agree on the directory by the last link: its name is a hash of what they all know of their launch, and whoever
// makes a link first decides. It works on a shared disk: nothing is locked and no clock is compared.
// aoti_debug/runs/rundir/ranks_directory.py does the same for `aoti-debug run`.
#pragma once

#include <cstdint>
#include <string>

namespace aoti_debug {

// What the environment says of this process; torchrun sets all of it.
struct Rank {
  uint32_t number = 0;            // RANK
  uint32_t world_size = 1;        // WORLD_SIZE; 1: there are no other ranks
  uint32_t local_world_size = 0;  // LOCAL_WORLD_SIZE, of this machine; 0: not said
  std::string run_id;             // TORCHELASTIC_RUN_ID
  std::string master;             // MASTER_ADDR:MASTER_PORT
  std::string restart;            // TORCHELASTIC_RESTART_COUNT

  bool is_one_of_many() const { return world_size > 1; }
};

// Where the run of a rank goes.
struct RankPlace {
  std::string path;       // its run directory, which was made; or that of the process that came before as this rank
  bool is_taken = false;  // by a living process of the same rank: another package, or a fork
};

// Finds or makes the directory of this launch of ranks in `base` (absolute) and this rank's in it. 0, or an errno; then
// `place->path` says what could not be made.
int claim_rank_directory(const std::string& base, const Rank& rank, RankPlace* place);

// The name of this machine.
std::string machine_name();

}  // namespace aoti_debug

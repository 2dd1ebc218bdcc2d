// Tables over ranks of all kinds, and random batches for them.
#ifndef SOK_CC_ENGINE_CONTRACT_SHARDED_TABLES_H_
#define SOK_CC_ENGINE_CONTRACT_SHARDED_TABLES_H_

#include <cstdint>
#include <vector>

#include "cc/engine/contract/contract_batch.h"
#include "cc/engine/contract/contract_group.h"

namespace sok {

// The tables of a group, and how each is exchanged. Table t is named "table<t>".
struct ShardedTables {
  std::vector<TableOptions> options;
  std::vector<ExchangeMode> modes;

  void Add(TableOptions table, ExchangeMode mode = ExchangeMode::kRows);
};

// Batches have the keys [0, kShardedKeys), and hostile ones in tables with hashing.
constexpr int64_t kShardedKeys = 57;

TableOptions PlacedOptions(int64_t dim, const Placement& placement = Placement());

// All placements, with hashing and without, in both exchanges.
ShardedTables TablesOfAllPlacements(int ranks);
// Tables that count, admit and evict.
ShardedTables TablesOfAllPolicies();

// Whether each rank evicts of its own rows, so that rows go that one process would keep.
bool EvictsOfItsOwnRows(const TableOptions& options);
// The options of the same table in one process; without eviction if ranks evict of their own rows.
TableOptions InOneProcess(const TableOptions& options, int ranks);

// A batch for each rank: one lookup in each table, and another in some tables that exchange rows. Ranks have
// different numbers of bags, beginning with `bags`. With some seeds rank 0 has none, and with some no rank
// has.
std::vector<ContractBatch> RandomBatches(const ShardedTables& tables, int ranks, uint32_t seed,
                                         int64_t bags = 2);

// Gradients of the outputs, by rank and lookup: multiples of 1/8 in [-1, 1], with exact sums.
std::vector<OutputValues> RandomGradients(const ShardedTables& tables,
                                          const std::vector<ContractBatch>& batches, uint32_t seed);

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_SHARDED_TABLES_H_

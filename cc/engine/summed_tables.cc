#include "cc/engine/summed_tables.h"

#include <cstdint>
#include <vector>

namespace sok {
namespace {

bool CanBeSummed(const LookupSpec& spec) { return spec.pooled() && !spec.weighted && spec.keeps_bags; }

template <typename... Parts>
Status NotSummed(const EngineTable& table, const Parts&... found) {
  return InvalidArgument("Lookup in embedding variable '", table.options().name,
                         "' over ranks: ranks send sums for a table with exactly one lookup in the group, ",
                         "pooled and without weights, but this group has ", found...);
}

}  // namespace

Status CheckSummedTables(const GroupBatch& batch, Span<const ExchangeMode> modes) {
  struct Lookups {
    int64_t all = 0;
    int64_t summed = 0;
  };
  std::vector<Lookups> lookups(static_cast<size_t>(modes.size()));
  for (const LookupSpec& spec : batch.specs) {
    ++lookups[spec.table].all;
    lookups[spec.table].summed += CanBeSummed(spec) ? 1 : 0;
  }
  for (int64_t t = 0; t < modes.size(); ++t) {
    const auto [all, summed] = lookups[t];
    if (modes[t] == ExchangeMode::kRows || (all == 1 && summed == 1)) continue;
    if (all != 1) return NotSummed(*batch.tables[t], all, " lookups in it");
    return NotSummed(*batch.tables[t], "one of another kind");
  }
  return OkStatus();
}

}  // namespace sok

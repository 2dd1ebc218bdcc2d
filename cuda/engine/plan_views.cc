#include "cuda/engine/plan_views.h"

namespace sok {

OccurrenceRows OccurrenceRowsOf(const MergedGroup& group, int t, const DeviceTable& table,
                                const int64_t* keys) {
  OccurrenceRows ids;
  ids.inverse = group.inverse.data();
  ids.rows = group.rows_to_read();
  ids.table = table.rows();
  ids.may_be_absent = group.may_be_absent[static_cast<size_t>(t)] != 0;
  ids.keys = keys;
  ids.initial = table.initializer();
  const Admission& admission = table.options().admission;
  if (admission.filters()) {
    ids.initial = Initializer{InitializerKind::kConstant, admission.default_value, 0.0f, 0};
  }
  return ids;
}

BagsView BagsViewOf(const GroupBags& group, size_t l) {
  const BagsOfLookup& lookup = group.lookups()[l];
  BagsView bags;
  bags.begin = lookup.bag_begin;
  if (lookup.weighted) bags.weights = group.weights();
  bags.first = lookup.begin;
  bags.bags = lookup.pooled ? lookup.num_bags : lookup.end - lookup.begin;
  bags.combiner = lookup.combiner;
  bags.occurrences = static_cast<int32_t>(lookup.end - lookup.begin);
  return bags;
}

}  // namespace sok

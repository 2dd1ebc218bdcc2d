// Slow, obvious lookups of a batch in double precision: the reference of the contract suites.
#ifndef SOK_CC_ENGINE_CONTRACT_LOOKUP_REFERENCE_H_
#define SOK_CC_ENGINE_CONTRACT_LOOKUP_REFERENCE_H_

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "cc/initializers/initializer.h"
#include "cc/lookup/testing/lookup_arrays.h"
#include "cc/table/table_options.h"

namespace sok {

// The initial row of a key, by its definition.
inline std::vector<float> ReferenceInitialRow(const TableOptions& options, int64_t key) {
  std::vector<float> row;
  const int64_t rows = options.initializer.rows;
  for (int64_t c = 0; c < options.dim; ++c) {
    row.push_back(options.initializer.kind == InitializerKind::kGiven
                      ? options.initial_rows[(key % rows + rows) % rows * options.dim + c]
                      : InitialValue(options.initializer, key, c));
  }
  return row;
}

// A bag without the ids whose weights a lookup leaves out.
inline ReferenceBag ReferenceKept(const ReferenceBag& bag, bool positive_weights_only) {
  if (!positive_weights_only) return bag;
  ReferenceBag kept;
  for (size_t i = 0; i < bag.ids.size(); ++i) {
    if (bag.weights[i] <= 0) continue;
    kept.ids.push_back(bag.ids[i]);
    kept.weights.push_back(bag.weights[i]);
  }
  return kept;
}

// d loss / d weights of a bag by the quotient rule, where `gradient` is that of its output.
inline std::vector<double> ReferenceWeightGradients(const ReferenceRows& rows, const ReferenceBag& bag,
                                                    Combiner combiner, const std::vector<double>& gradient) {
  const double divisor = ReferenceDivisor(combiner, bag);
  std::vector<double> result(bag.ids.size(), 0.0);
  if (divisor == 0) return result;
  const auto dot = [&](const std::vector<double>& row) {
    double sum = 0;
    for (size_t c = 0; c < gradient.size(); ++c) sum += gradient[c] * row[c];
    return sum;
  };
  double pooled = 0;
  for (size_t i = 0; i < bag.ids.size(); ++i) {
    pooled += bag.weights[i] * dot(rows.at(bag.ids[i])) / divisor;
  }
  for (size_t i = 0; i < bag.ids.size(); ++i) {
    const double growth = combiner == Combiner::kSum    ? 0.0
                          : combiner == Combiner::kMean ? 1.0
                                                        : bag.weights[i] / divisor;
    result[i] = (dot(rows.at(bag.ids[i])) - growth * pooled) / divisor;
  }
  return result;
}

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_LOOKUP_REFERENCE_H_

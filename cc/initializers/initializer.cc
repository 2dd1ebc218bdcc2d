#include "cc/initializers/initializer.h"

#include <algorithm>

namespace sok {
namespace {

// The kind is known to the compiler inside the loop, which then holds one distribution's arithmetic only.
template <InitializerKind kKind>
void FillFromBits(Initializer initializer, int64_t key, Span<float> row) {
  initializer.kind = kKind;
  const uint64_t state = RowState(initializer.seed, key);
  for (int64_t c = 0; c < row.size(); ++c) row[c] = ValueFromBits(initializer, ColumnBits(state, c));
}

}  // namespace

void FillRow(const Initializer& initializer, int64_t key, Span<float> row) {
  switch (initializer.kind) {
    case InitializerKind::kConstant:
      std::fill(row.begin(), row.end(), initializer.a);
      return;
    case InitializerKind::kUniform:
      return FillFromBits<InitializerKind::kUniform>(initializer, key, row);
    case InitializerKind::kNormal:
      return FillFromBits<InitializerKind::kNormal>(initializer, key, row);
    case InitializerKind::kTruncatedNormal:
      return FillFromBits<InitializerKind::kTruncatedNormal>(initializer, key, row);
  }
}

}  // namespace sok

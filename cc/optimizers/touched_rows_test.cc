// Optimizers that change touched rows only, held to plain formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/optimizers/optimizer_reference.h"
#include "cc/optimizers/trained_rows.h"

namespace sok {
namespace {

struct Case {
  std::string name;
  std::vector<float> hyper;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
  for (float value : c.hyper) *out << " " << value;
}

class TouchedRowsTest : public testing::TestWithParam<Case> {};

// A row as the reference sees it: weights and one vector per slot.
struct ReferenceRow {
  std::vector<float> w;
  std::vector<std::vector<float>> slots;
};

std::vector<ReferenceRow> ReferenceRows(const TrainedRows& rows, const std::vector<SlotSpec>& specs,
                                        int64_t dim) {
  std::vector<ReferenceRow> result;
  for (const std::vector<float>& record : rows.Records()) {
    ReferenceRow row;
    row.w.assign(record.begin(), record.begin() + dim);
    for (const SlotSpec& spec : specs) {
      row.slots.emplace_back(static_cast<size_t>(spec.width), spec.fill);
    }
    result.push_back(row);
  }
  return result;
}

std::vector<float> Flatten(const ReferenceRow& row) {
  std::vector<float> flat = row.w;
  for (const auto& slot : row.slots) flat.insert(flat.end(), slot.begin(), slot.end());
  return flat;
}

TEST_P(TouchedRowsTest, FollowsTheFormulasAndLeavesOtherRowsAlone) {
  const Case& c = GetParam();
  for (int64_t dim : {1, 2, 3, 7, 16, 63, 64, 129, 1025}) {
    constexpr int64_t kRows = 9;
    TrainedRows rows(c.name, kRows, dim, c.hyper);
    ASSERT_TRUE(rows.status().ok()) << rows.status().message();
    std::vector<ReferenceRow> expected = ReferenceRows(rows, rows.optimizer().Slots(dim, c.hyper), dim);
    const std::vector<float> untouched = rows.Record(kRows - 1);
    ThreadPool pool(2, /*min_block_ns=*/0);
    std::mt19937_64 random(static_cast<uint64_t>(dim));
    for (int t = 0; t < 12; ++t) {
      const RandomStep step = MakeRandomStep(kRows - 1, dim, 0.6, &random);
      rows.Step(pool, c.hyper, step.rows, step.grads);
      for (size_t i = 0; i < step.rows.size(); ++i) {
        const auto g = step.grads.begin() + static_cast<int64_t>(i) * dim;
        ReferenceRow& row = expected[static_cast<size_t>(step.rows[i])];
        ReferenceStep(c.name, c.hyper, std::vector<float>(g, g + dim), &row.w, &row.slots);
      }
    }
    ASSERT_TRUE(rows.status().ok()) << rows.status().message();
    EXPECT_EQ(rows.optimizer().steps(), 12);
    EXPECT_EQ(rows.Record(kRows - 1), untouched);
    for (int64_t row = 0; row + 1 < kRows; ++row) {
      const std::vector<float> actual = rows.Record(row);
      const std::vector<float> reference = Flatten(expected[static_cast<size_t>(row)]);
      ASSERT_EQ(actual.size(), reference.size());
      for (size_t k = 0; k < actual.size(); ++k) {
        // A dozen steps, each rounding a few times.
        ASSERT_NEAR(actual[k], reference[k], 5e-6 * (1.0 + std::fabs(reference[k])))
            << "dim " << dim << " row " << row << " float " << k;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, TouchedRowsTest,
    testing::Values(
        Case{"sgd", {0.1f}}, Case{"momentum", {0.1f, 0.9f}}, Case{"nesterov", {0.1f, 0.9f}},
        Case{"keras_momentum", {0.1f, 0.9f}}, Case{"keras_nesterov", {0.1f, 0.9f}},
        Case{"adagrad", {0.1f, 0.1f, 0.0f}}, Case{"adagrad", {0.1f, 0.0f, 1e-7f}},
        Case{"adagrad_decay", {0.1f, 0.1f, 0.9f, 0.0f}}, Case{"adagrad_decay", {0.1f, 0.1f, 0.5f, 4.0f}},
        Case{"rowwise_adagrad", {0.1f, 0.0f, 1e-8f}}, Case{"rmsprop", {0.01f, 0.9f, 0.8f, 1e-10f, 1.0f}},
        Case{"rmsprop_centered", {0.01f, 0.9f, 0.8f, 1e-2f, 1.0f}},
        Case{"ftrl", {0.1f, -0.5f, 0.1f, 0.0f, 0.0f, 0.0f, 0.0f}},
        Case{"ftrl", {0.1f, -0.5f, 0.1f, 0.05f, 0.02f, 0.03f, 0.5f}},
        Case{"ftrl", {0.1f, -0.7f, 0.1f, 0.05f, 0.02f, 0.03f, 0.0f}},
        Case{"ftrl", {0.1f, 0.0f, 0.1f, 0.05f, 0.02f, 0.0f, 0.0f}}, Case{"adadelta", {1.0f, 0.95f, 1e-3f}},
        Case{"adadelta", {0.1f, 0.5f, 1e-8f}}, Case{"adamax", {0.01f, 0.9f, 0.999f, 1e-7f}},
        Case{"adamax", {0.01f, 0.0f, 0.25f, 1e-2f}}, Case{"lazy_adam", {0.01f, 0.9f, 0.999f, 1e-8f}},
        Case{"lazy_adam", {0.01f, 0.0f, 0.9f, 1e-3f}}));

}  // namespace
}  // namespace sok

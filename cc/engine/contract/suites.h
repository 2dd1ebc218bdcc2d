// The contract suites compare an engine with slow references. The test of an engine that implements all of it
// links all_suites.cc. Another links this library and instantiates the suites of what the engine implements:
//
//   INSTANTIATE_TEST_SUITE_P(Sketch, LookupContract, testing::Values(SketchCase()), NameOfCase);
#ifndef SOK_CC_ENGINE_CONTRACT_SUITES_H_
#define SOK_CC_ENGINE_CONTRACT_SUITES_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cc/engine/contract/engine_case.h"

namespace sok {

class EngineContract : public testing::TestWithParam<EngineCase> {};

class TableContract : public EngineContract {};     // MakeTable, Describe, Assign; lookups without training
class StaticContract : public EngineContract {};    // tables without hashing
class EraseContract : public EngineContract {};     // EngineTable::Erase, and the reuse of erased rows
class LookupContract : public EngineContract {};    // Engine::Lookup
class PrefetchContract : public EngineContract {};  // Engine::Merge and Read
class GradientContract : public EngineContract {};  // Engine::Backward, WriteReferences
class WeightsContract : public EngineContract {};   // Engine::WeightGradients
class TrainingContract : public EngineContract {};  // EngineTable::ApplyGradients
class FusedContract : public EngineContract {};     // Engine::Train
class RecordTypesContract : public EngineContract {};   // TableOptions::record
class AdmissionContract : public EngineContract {};     // TableOptions::admission
class CapacityContract : public EngineContract {};      // TableOptions::on_full
class SaveEvictionContract : public EngineContract {};  // TableOptions::eviction, at a save
class RanksContract : public EngineContract {};         // a group over ranks
class ContentsContract : public EngineContract {};      // EngineTable::Hold: reading and writing rows

inline std::string NameOfCase(const testing::TestParamInfo<EngineCase>& info) { return info.param.name; }

// Expects an error whose message has all of these words.
inline void ExpectNames(const Status& status, StatusCode code, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), code) << status.message();
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << word << " in: " << status.message();
  }
}

// Lets a test program leave out a suite that its engine does not implement.
#define SOK_CONTRACT_SUITE(suite) GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite)

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_SUITES_H_

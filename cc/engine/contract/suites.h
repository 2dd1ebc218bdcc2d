// The contract suites: what every engine has to do, held to slow references. The test of an engine that
// offers all of it links all_suites.cc; another instantiates the suites that it offers:
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

class TableContract : public EngineContract {};     // making, describing, assigning; lookups that only read
class StaticContract : public EngineContract {};    // tables without hashing
class EraseContract : public EngineContract {};     // EngineTable::Erase, and rows that are given to new keys
class LookupContract : public EngineContract {};    // Engine::Lookup
class PrefetchContract : public EngineContract {};  // Engine::Merge and Read
class GradientContract : public EngineContract {};  // Engine::Backward, WriteReferences
class WeightsContract : public EngineContract {};   // Engine::WeightGradients
class TrainingContract : public EngineContract {};  // EngineTable::ApplyGradients
class FusedContract : public EngineContract {};     // Engine::Train
class AdmissionContract : public EngineContract {};     // TableOptions::admission
class CapacityContract : public EngineContract {};      // TableOptions::on_full
class SaveEvictionContract : public EngineContract {};  // TableOptions::eviction, which a save carries out
class RanksContract : public EngineContract {};         // a group over ranks
class ContentsContract : public EngineContract {};  // EngineTable::Hold: rows out of a table and into another

inline std::string NameOfCase(const testing::TestParamInfo<EngineCase>& info) { return info.param.name; }

// Expects an error whose message has all of these words.
inline void ExpectNames(const Status& status, StatusCode code, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), code) << status.message();
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << word << " in: " << status.message();
  }
}

// A suite that an engine does not offer is not instantiated, on purpose.
#define SOK_CONTRACT_SUITE(suite) GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite)

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_SUITES_H_

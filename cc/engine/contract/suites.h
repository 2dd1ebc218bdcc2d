// The contract suites: what every engine has to do, held to slow references. An engine's test instantiates
// those that it offers:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, LookupContract, testing::Values(CpuCase()), NameOfCase);
//
// and links the library of the suites, whose tests are then its own.
#ifndef SOK_CC_ENGINE_CONTRACT_SUITES_H_
#define SOK_CC_ENGINE_CONTRACT_SUITES_H_

#include <gtest/gtest.h>

#include <string>

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

// A suite that an engine does not offer is not instantiated, on purpose.
#define SOK_CONTRACT_SUITE(suite) GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite)

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_SUITES_H_

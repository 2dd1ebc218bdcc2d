// Batches for the contract suites: lookups as lists of bags, for the references, and as arrays in the
// engine's memory.
#ifndef SOK_CC_ENGINE_CONTRACT_CONTRACT_BATCH_H_
#define SOK_CC_ENGINE_CONTRACT_CONTRACT_BATCH_H_

#include <cstdint>
#include <random>
#include <vector>

#include "cc/engine/contract/engine_case.h"
#include "cc/engine/contract/lookup_reference.h"
#include "cc/engine/engine.h"

namespace sok {

// One lookup of a batch. Its input has the ids of `bags` in their order, bag by bag. With a `shuffle_seed`
// other than 0, a sparse lookup mixes the bags, but keeps the order within each bag.
struct ContractLookup {
  LookupSpec spec;
  KeyType key_type = KeyType::kInt64;
  std::vector<ReferenceBag> bags;
  uint32_t shuffle_seed = 0;

  int64_t num_ids() const;
};

using ContractBatch = std::vector<ContractLookup>;

// The arrays of a batch in the engine's memory.
class BatchArrays {
 public:
  BatchArrays(EngineMemory& memory, const ContractBatch& batch);

  Span<const LookupSpec> specs() const { return specs_; }
  Span<const LookupInput> inputs() const { return inputs_; }
  // Id i of the input of lookup `l` is id given_order(l)[i] of its bags, counted bag by bag.
  const std::vector<int64_t>& given_order(size_t l) const { return given_order_[l]; }

 private:
  void Add(EngineMemory& memory, const ContractLookup& lookup);

  std::vector<LookupSpec> specs_;
  std::vector<LookupInput> inputs_;
  std::vector<std::vector<int64_t>> given_order_;
  std::vector<EngineArray<int64_t>> words_;
  std::vector<EngineArray<int32_t>> keys32_;
  std::vector<EngineArray<float>> floats_;
};

// Lookups of every layout, combiner and key type in tables of `dims`, with `bags` bags each. Ids are few and
// skewed, and include hostile values.
ContractBatch RandomBatch(uint32_t seed, int64_t bags, const std::vector<int64_t>& dims);

// A sparse lookup with combiner sum.
ContractLookup SumOf(int table, std::vector<std::vector<int64_t>> bags);

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_CONTRACT_BATCH_H_

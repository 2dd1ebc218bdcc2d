#include "sok_ops/kernels/output_layout.h"

#include <numeric>

#include "sok_ops/kernels/tf_versions.h"

namespace sok {

namespace tf = ::tensorflow;

tf::Status OutputLayout::Read(tf::OpKernelConstruction* construction, const std::vector<LookupSpec>& specs,
                              const std::vector<int64_t>& dims) {
  std::vector<int64_t> beside;
  int num_outputs;
  TF_RETURN_IF_ERROR(construction->GetAttr("beside", &beside));
  TF_RETURN_IF_ERROR(construction->GetAttr("num_outputs", &num_outputs));
  const int64_t lookups = static_cast<int64_t>(specs.size());
  if (beside.empty()) beside.assign(specs.size(), 1);
  begin_ = {0};
  for (const int64_t count : beside) {
    if (count < 1 || count > lookups - begin_.back()) break;
    begin_.push_back(begin_.back() + static_cast<int>(count));
  }
  if (begin_.size() != beside.size() + 1 || begin_.back() != lookups || this->num_outputs() != num_outputs) {
    return tf::errors::InvalidArgument(construction->def().op(), ": `beside` does not divide ", lookups,
                                       " lookups into ", num_outputs, " outputs of at least one lookup");
  }
  for (const LookupSpec& spec : specs) {
    if (spec.table >= static_cast<int>(dims.size())) {
      return tf::errors::InvalidArgument(construction->def().op(), ": a lookup is in table ", spec.table,
                                         " of ", dims.size());
    }
    tables_.push_back(spec.table);
    dims_.push_back(dims[spec.table]);
  }
  return tf::Status();
}

int64_t OutputLayout::Width(int o) const {
  return std::accumulate(dims_.begin() + begin_[o], dims_.begin() + begin_[o + 1], int64_t{0});
}

tf::Status OutputLayout::Shapes(const std::vector<tf::TensorShape>& of_lookups,
                                const std::vector<TableRef>& tables,
                                std::vector<tf::TensorShape>* shapes) const {
  for (int o = 0; o < num_outputs(); ++o) {
    const int first = begin_[o];
    tf::TensorShape shape = of_lookups[first];
    shape.RemoveLastDims(1);
    for (int l = first + 1; l < begin_[o + 1]; ++l) {
      tf::TensorShape other = of_lookups[l];
      other.RemoveLastDims(1);
      if (other == shape) continue;
      return tf::errors::InvalidArgument(
          "Lookup in embedding variable '", tables[tables_[l]].name(), "': its output of shape ",
          of_lookups[l].DebugString(), " cannot be concatenated with that of embedding variable '",
          tables[tables_[first]].name(), "', of shape ", of_lookups[first].DebugString());
    }
    TF_RETURN_WITH_CONTEXT_IF_ERROR(AddDim(Width(o), &shape), "\nLookup in embedding variable '",
                                    tables[tables_[first]].name(), "'");
    shapes->push_back(shape);
  }
  return tf::Status();
}

tf::Status AllocateOutputs(tf::OpKernelContext* context, const OutputLayout& layout,
                           const std::vector<tf::TensorShape>& shapes, const std::vector<TableRef>& tables,
                           std::vector<OutputRows>* rows) {
  for (int o = 0; o < layout.num_outputs(); ++o) {
    tf::Tensor* output = nullptr;
    TF_RETURN_WITH_CONTEXT_IF_ERROR(context->allocate_output(o, shapes[o], &output),
                                    "\nLookup in embedding variable '",
                                    tables[layout.table(layout.begin(o))].name(), "'");
    layout.AppendParts(o, output->flat<float>().data(), rows);
  }
  return tf::Status();
}

}  // namespace sok

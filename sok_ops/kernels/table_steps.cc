#include "sok_ops/kernels/table_steps.h"

namespace sok {

namespace tf = ::tensorflow;

tf::Status TableSteps::Read(tf::OpKernelConstruction* construction, int64_t num_tables) {
  TF_RETURN_IF_ERROR(construction->GetAttr("trained", &trained_));
  TF_RETURN_IF_ERROR(construction->GetAttr("optimizer", &optimizer_));
  int num_trained;
  TF_RETURN_IF_ERROR(construction->GetAttr("num_trained", &num_trained));
  const std::string op = construction->def().op();
  std::vector<bool> seen(num_tables, false);
  for (const int t : trained_) {
    if (t < 0 || t >= num_tables || seen[t]) {
      return tf::errors::InvalidArgument(op, ": `trained` must have distinct positions of ", num_tables,
                                         " tables; ", t, " is out of range or occurs twice");
    }
    seen[t] = true;
  }
  if (static_cast<int>(trained_.size()) != num_trained) {
    return tf::errors::InvalidArgument(op, ": ", num_trained, " hyper-parameter vectors for ",
                                       trained_.size(), " tables");
  }
  return tf::Status();
}

tf::Status TableSteps::Steps(tf::OpKernelContext* context, const GroupTables& tables,
                             std::vector<EngineStep>* steps) const {
  const int first_input = context->num_inputs() - static_cast<int>(trained_.size());
  for (size_t i = 0; i < trained_.size(); ++i) {
    const tf::Tensor& hyper = context->input(first_input + static_cast<int>(i));
    if (hyper.dims() != 1) {
      return tf::errors::InvalidArgument("Embedding variable '", tables.refs[trained_[i]].name(),
                                         "': hyper-parameters of shape ", hyper.shape().DebugString(),
                                         ", not [h]");
    }
    steps->push_back(
        {trained_[i], tables.tables[trained_[i]], {hyper.flat<float>().data(), hyper.NumElements()}});
  }
  return tf::Status();
}

}  // namespace sok

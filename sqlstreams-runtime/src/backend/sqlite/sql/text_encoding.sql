-- sqlstreams: text.encoding
pragma encoding
